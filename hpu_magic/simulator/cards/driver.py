"""The driver of the simulated cards, which manages their owners and memory counters.

As on a real Gaudi, only one process at a time can own a card, from its first use until the process
ends. Each card has two files in one of the user's directories: a lock, which the owner holds, and a
page of counters, which all of the user's processes can read.
"""

from __future__ import annotations

import mmap
import os
import stat
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpu_magic import holders
from hpu_magic.simulator.cards import place
from hpu_magic.simulator.cards.card_selection import AcquireError, candidates, choose_for, forget
from hpu_magic.simulator.cards.configuration import MOST_CARDS, Configuration, DeviceType
from hpu_magic.simulator.cards.page import Counters, Page, PageError, read_page, write_page
from hpu_magic.simulator.cards.record_lock import lock_holder, lock_or_holder


@dataclass(frozen=True, eq=False)
class Card:
    """The card of this process. The `page` remains mapped until the process ends."""

    module_id: int
    generation: str
    capacity: int
    page: mmap.mmap
    path: Path


@dataclass(frozen=True)
class CardState(Counters):
    """The public state of a card. All counters of a free card are zero.

    Attributes
    ----------
    capacity : int
        The memory in bytes, as configured by the owner, or by this process if the card is free.
    holder : Holder or None
        The process that owns the card.
    acquired_ns : int or None
        The time when the card was acquired, in nanoseconds since the epoch.
    error : str or None
        A description of the problem if the card's page is damaged, in which case the counters are
        zero.
    """

    module_id: int = 0
    generation: str = ""
    capacity: int = 0
    path: Path = Path()
    holder: holders.Holder | None = None
    acquired_ns: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class _Ownership:
    card: Card
    pid: int
    lock: tuple[int, int]
    """The device and inode of the lock file, which this process must not open again."""


_serial = threading.Lock()
_ownership: _Ownership | None = None


def _renew_serial() -> None:
    # The lock may be held by a thread of the parent process that does not exist in the child.
    global _serial
    _serial = threading.Lock()


os.register_at_fork(after_in_child=_renew_serial)


def device_count(configuration: Configuration | None = None) -> int:
    """Return the total number of cards in the machine."""
    return (configuration or Configuration.from_environment()).count


def acquired() -> Card | None:
    """Return the card that this process owns, or None before `acquire` and in a forked child."""
    ownership = _ownership
    return ownership.card if ownership and ownership.pid == os.getpid() else None


def in_bad_fork() -> bool:
    """Return whether this process was forked from one that owned a card."""
    return _ownership is not None and _ownership.pid != os.getpid()


def choose(index: int) -> None:
    """Choose a card by its index among those that this process may use, before acquiring it.

    The index is a position in ``HABANA_VISIBLE_MODULES``, or the module id if that variable is not
    set. Choosing the same card again has no effect. If the process uses another card, an index that
    is equal to the process's rank has no effect either, because libraries use that index to refer
    to the process's card.

    Raises
    ------
    RuntimeError
        There is no card with this index, or this process uses another card.
    ValueError
        An environment variable has an invalid value.
    """
    with _serial:
        own = None if _ownership is None else _ownership.card.module_id
        choose_for(own, index, Configuration.from_environment())


def acquire() -> Card:
    """Acquire the first free card for this process. Later calls return the same card.

    If this process has chosen a card, only that card is tried, and a failure discards the choice.
    Otherwise, ``HABANA_VISIBLE_MODULES`` restricts the module ids, and ``HLS_MODULE_ID`` selects
    one of them. As in the vendor's bridge, a free card other than the selected one is used only if
    ``HABANA_VISIBLE_MODULES`` is not set.

    Raises
    ------
    AcquireError
        Other processes own all candidates, or there are no candidates.
    RuntimeError
        This process was forked from one that owns a card, or the cards' directory is unsafe.
    ValueError
        An environment variable has an invalid value.
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
    """Return the states of all cards in the machine without acquiring a card.

    Raises
    ------
    RuntimeError
        The cards' directory is a symbolic link or belongs to another user.
    ValueError
        An environment variable has an invalid value.
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
    holder: holders.Holder | None = None,
    error: str | None = None,
) -> CardState:
    """Return the state of a card that is free, just acquired or damaged, with all counters zero."""
    return CardState(
        module_id=module,
        generation=configuration.generation,
        capacity=configuration.capacity,
        path=path,
        holder=holder,
        error=error,
    )


def _state(
    configuration: Configuration, directory: Path, module: int, owner: int | None
) -> CardState:
    path = _page_path(directory, module)
    holder = None if owner is None else holders.holder(owner)
    error = None
    try:
        page = read_page(path)
    except PageError as damage:
        page, error = None, str(damage)
    # If the owner has only just acquired the lock, the page still belongs to the previous owner.
    if page is None or owner not in (0, page.owner_pid):
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
    held: list[tuple[str, holders.Holder]] = []
    for module in candidates:
        path = _lock_path(directory, module)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if (owner := lock_or_holder(lock)) is not None:
            held.append((f"HPU {module}", holders.holder(owner)))
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
    cards = "All cards are" if len(held) > 1 else "The card that this process may use is"
    message = holders.refusal(held, cards)
    if configuration.count < MOST_CARDS:
        message += f", or set HPU_MAGIC_CARDS to simulate more than {configuration.count}"
    raise AcquireError(f"synStatus=8 [Device not found] Device acquire failed. {message}.")


def _owner(path: Path) -> int | None:
    """Return the pid of the process that holds the lock on the file at `path`.

    The caller must hold `_serial`.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if acquired() and _ownership and _ownership.lock == (status.st_dev, status.st_ino):
        return os.getpid()
    if not stat.S_ISREG(status.st_mode):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return lock_holder(descriptor)
    finally:
        os.close(descriptor)


def _lock_path(directory: Path, module: int) -> Path:
    return directory / f"card{module}.lock"


def _page_path(directory: Path, module: int) -> Path:
    return directory / f"card{module}"
