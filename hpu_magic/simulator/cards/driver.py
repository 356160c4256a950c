"""Driver of the simulated cards: who owns which card, and how full it is.

Like a Gaudi, a card belongs to one process at a time, from its first use until
the process ends. Each card has two files in a directory of the user: a lock
that its owner holds and a page of counters that everybody may read.
"""

from __future__ import annotations

import mmap
import os
import stat
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpu_magic import sessions
from hpu_magic.program_name import program_name
from hpu_magic.simulator.cards import place
from hpu_magic.simulator.cards.choice import AcquireError, candidates, choose_for, forget
from hpu_magic.simulator.cards.configuration import MOST_CARDS, Configuration, DeviceType
from hpu_magic.simulator.cards.page import Counters, Page, PageError, read_page, write_page
from hpu_magic.simulator.cards.record_lock import LockHolder, lock_holder, lock_or_holder


@dataclass(frozen=True, eq=False)
class Card:
    """The card of this process; `page` stays mapped as long as the process lives."""

    module_id: int
    generation: str
    capacity: int
    page: mmap.mmap
    path: Path


@dataclass(frozen=True)
class Holder:
    """A process that owns a card.

    `pid` is 0, and `command` says so, when the process lives in another PID
    namespace (another container) and cannot be seen from here. `idle` are seconds since it last
    ran a cell, and `fit` is the fit that runs in it; None where it tells nothing of that.
    """

    module_id: int
    pid: int
    command: str
    idle: float | None = None
    fit: sessions.Fit | None = None


@dataclass(frozen=True)
class CardState(Counters):
    """One card as any process may see it; a free card has zero counters.

    Attributes
    ----------
    capacity : int
        Memory in bytes, as the owner configured it; of a free card, as this process would.
    holder : Holder or None
        The process that owns the card.
    acquired_ns : int or None
        When the owner took it, in nanoseconds since the epoch.
    error : str or None
        Why the card's page is not to be trusted; its counters are then zero.
    """

    module_id: int = 0
    generation: str = ""
    capacity: int = 0
    path: Path = Path()
    holder: Holder | None = None
    acquired_ns: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class _Ownership:
    card: Card
    pid: int
    lock: tuple[int, int]
    """Device and inode of the lock file, which this process must not open again."""


_serial = threading.Lock()
_ownership: _Ownership | None = None


def _renew_serial() -> None:
    # Another thread of the parent may have held it; that thread is not here.
    global _serial
    _serial = threading.Lock()


os.register_at_fork(after_in_child=_renew_serial)


def device_count(configuration: Configuration | None = None) -> int:
    """Return the number of cards of the machine, free or not."""
    return (configuration or Configuration.from_environment()).count


def acquired() -> Card | None:
    """Return the card that this process owns; None before `acquire` and in a forked child."""
    ownership = _ownership
    return ownership.card if ownership and ownership.pid == os.getpid() else None


def in_bad_fork() -> bool:
    """Tell whether this is a fork of a process that owned a card."""
    return _ownership is not None and _ownership.pid != os.getpid()


def choose(index: int) -> None:
    """Choose the card by its place among those that this process may use, before it is acquired.

    The place is that in ``HABANA_VISIBLE_MODULES``, else the module id. Without effect if this
    process has chosen or acquired that card already, or has another and the index is that of its
    rank, by which libraries name the card of a process.

    Raises
    ------
    RuntimeError
        There is no card at that place, or this process uses another one.
    ValueError
        An environment variable holds something else than it may.
    """
    with _serial:
        own = None if _ownership is None else _ownership.card.module_id
        choose_for(own, index, Configuration.from_environment())


def acquire() -> Card:
    """Take the first free card for this process; the same card at every later call.

    If this process chose a card, that one is taken, or none and the choice is forgotten. Else
    ``HABANA_VISIBLE_MODULES`` limits the module ids that the process may use and
    ``HLS_MODULE_ID`` says which to take; any other free card does instead only
    while the former is unset, as with the vendor's bridge.

    Raises
    ------
    AcquireError
        All candidates are held by other processes, or there is none.
    RuntimeError
        Called in a fork of a process that owns a card, or the cards' directory is unsafe.
    ValueError
        An environment variable holds something else than it may.
    """
    global _ownership
    with _serial:
        if _ownership is None:
            configuration = Configuration.from_environment()
            try:
                _ownership = _take(configuration, candidates(configuration), place.directory())
            except AcquireError:
                forget()
                raise
        if in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize HPU in forked subprocess. To use HPU with "
                "multiprocessing, you must use the 'spawn' start method"
            )
        return _ownership.card


def snapshot() -> list[CardState]:
    """Read the state of every card of the machine without acquiring any.

    Raises
    ------
    RuntimeError
        The cards' directory is a symbolic link or belongs to somebody else.
    ValueError
        An environment variable holds something else than it may.
    """
    configuration = Configuration.from_environment()
    directory = place.existing_directory()
    modules = range(configuration.count)
    if directory is None:
        return [_free(configuration, module) for module in modules]
    with _serial:
        owners = [_owner(_lock_path(directory, module)) for module in modules]
    return [_state(configuration, directory, module, owner) for module, owner in enumerate(owners)]


def _free(
    configuration: Configuration,
    module: int,
    path: Path = Path(),
    holder: Holder | None = None,
    error: str | None = None,
) -> CardState:
    """State of a card without figures: free, only just taken, or with a page that is damaged."""
    return CardState(
        module_id=module,
        generation=configuration.generation,
        capacity=configuration.capacity,
        path=path,
        holder=holder,
        error=error,
    )


def _state(
    configuration: Configuration, directory: Path, module: int, owner: LockHolder | None
) -> CardState:
    path = _page_path(directory, module)
    holder = _holder(module, owner.pid) if owner else None
    error = None
    try:
        page = read_page(path)
    except PageError as wrong:
        page, error = None, str(wrong)
    # The page of a holder that has only just taken the lock is its predecessor's.
    if not (page and owner and owner.pid in (0, page.owner_pid)):
        return _free(configuration, module, path, holder, error)
    return CardState(
        **vars(page.counters),
        module_id=module,
        generation=page.device_type.name,
        capacity=page.capacity,
        path=path,
        holder=holder,
        acquired_ns=page.acquired_ns,
    )


def _take(configuration: Configuration, candidates: Iterable[int], directory: Path) -> _Ownership:
    holders: list[Holder] = []
    for module in candidates:
        path = _lock_path(directory, module)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if owner := lock_or_holder(lock):
            holders.append(_holder(module, owner.pid))
            os.close(lock)
            continue
        page = Page(
            configuration.capacity,
            DeviceType[configuration.generation],
            os.getpid(),
            time.time_ns(),
            Counters(),
        )
        try:
            mapping = write_page(_page_path(directory, module), page)
        except OSError:
            os.close(lock)
            raise
        card = Card(
            module,
            configuration.generation,
            configuration.capacity,
            mapping,
            _page_path(directory, module),
        )
        status = os.fstat(lock)
        return _Ownership(card, os.getpid(), (status.st_dev, status.st_ino))
    raise AcquireError(_busy(holders, configuration), holders)


def _busy(holders: Sequence[Holder], configuration: Configuration) -> str:
    # Whoever has been idle for longest is the one to ask first.
    ordered = sorted(holders, key=lambda holder: -(holder.idle or 0.0))
    which, first = "The card that this process may use is", "that notebook's kernel"
    if len(holders) > 1:
        which, first = "All cards are", "one of these notebooks' kernels"
        if ordered[0].idle:
            first += ", of which the longest idle stands first,"
    mend = f"shut down {first} or end that process, then try again"
    if configuration.count < MOST_CARDS:
        mend += f", or simulate more than {configuration.count} with HPU_MAGIC_CARDS"
    named = ", ".join(map(_named, ordered))
    return f"synStatus=8 [Device not found] Device acquire failed. {which} held ({named}): {mend}."


def _named(holder: Holder) -> str:
    if not holder.pid:
        return f"HPU {holder.module_id} by {holder.command}"
    who = ", ".join(filter(None, (holder.command, sessions.activity(holder.idle, holder.fit))))
    return f"HPU {holder.module_id} by process {holder.pid} ({who})"


def _owner(path: Path) -> LockHolder | None:
    """Tell who holds the lock file at `path`; the caller holds `_serial`."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if acquired() and _ownership and _ownership.lock == (status.st_dev, status.st_ino):
        return LockHolder(os.getpid())
    if not stat.S_ISREG(status.st_mode):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return lock_holder(descriptor)
    finally:
        os.close(descriptor)


def _holder(module: int, pid: int) -> Holder:
    """Name the process that owns a card as others may see it."""
    if not pid:
        return Holder(module, 0, "a process outside this PID namespace")
    try:
        name = program_name(pid)
    except PermissionError:
        return Holder(module, pid, "a process of another user")
    session = sessions.session(pid)
    if session is None:
        return Holder(module, pid, name)
    return Holder(module, pid, name, session.idle, session.fit)


def _lock_path(directory: Path, module: int) -> Path:
    return directory / f"card{module}.lock"


def _page_path(directory: Path, module: int) -> Path:
    return directory / f"card{module}"
