"""Processes that hold cards. They may end while they are being looked at."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpu_magic import sessions
from hpu_magic.monitor.reading import Holder, Snapshot
from hpu_magic.program_name import full_command, program_name

# The control nodes (accel_controlD0, hl_controlD0) beside these are opened by
# monitors and hold nothing.
_DEVICE_NODE = re.compile(r"/dev/(?:accel/accel|hl)([0-9]+)")


# Where the kernel tells which device node belongs to which card on the bus.
_NODES = (("accel", re.compile(r"accel([0-9]+)")), ("habanalabs", re.compile(r"hl([0-9]+)")))


@dataclass(frozen=True)
class DeviceHolders:
    """Processes that have a card's device node open.

    Attributes
    ----------
    by_minor : dict
        Holders by the card's minor number.
    hidden : bool
        Whether there are processes that only root may look into.
    """

    by_minor: dict[int, tuple[Holder, ...]]
    hidden: bool = False


def device_holders(proc: Path = Path("/proc")) -> DeviceHolders:
    """Find the processes that have a card's device node open.

    Parameters
    ----------
    proc : Path
        Where the kernel shows its processes.
    """
    found: dict[int, list[Holder]] = defaultdict(list)
    hidden = False
    for entry in _listing(proc):
        if not entry.isdigit():
            continue
        descriptors = proc / entry / "fd"
        try:
            names = _listing(descriptors)
        except PermissionError:
            hidden = True
            continue
        minors = set(_open_cards(descriptors / name for name in names))
        if minors:
            holder = describe(int(entry))
            for minor in minors:
                found[minor].append(holder)
    return DeviceHolders({minor: tuple(holders) for minor, holders in found.items()}, hidden)


def minors_by_bus(classes: Path = Path("/sys/class")) -> dict[str, int]:
    """Return the minor numbers of all cards by their address on the PCI bus, in lower case."""
    minors = {}
    for folder, node in _NODES:
        for entry in _listing(classes / folder):
            if match := node.fullmatch(entry):
                minors[(classes / folder / entry / "device").resolve().name.lower()] = int(match[1])
    return minors


def describe(pid: int) -> Holder:
    """Name a process by its notebook or its program and script, and its user."""
    try:
        name = program_name(pid)
    except PermissionError:
        return Holder(pid, "a process of another user", user(pid))
    session = sessions.session(pid)
    if session is None:
        return Holder(pid, name, user(pid))
    return Holder(pid, name, user(pid), session.idle, session.fit)


def with_arguments(snapshot: Snapshot, *, of_others: bool = False) -> Snapshot:
    """Return a snapshot whose holders show their whole command lines, in at most 80 characters.

    Kernels keep the names of their notebooks.

    Parameters
    ----------
    snapshot : Snapshot
        What was seen.
    of_others : bool
        Also those of other users' processes, as far as they can be seen; by default only
        those of the viewer's own.
    """

    def shown(holder: Holder) -> Holder:
        if not holder.pid or not (of_others or _own(holder.pid)):
            return holder
        try:
            return replace(holder, command=full_command(holder.pid))
        except PermissionError:
            return holder

    cards = (replace(one, holders=tuple(map(shown, one.holders))) for one in snapshot.cards)
    return replace(snapshot, cards=tuple(cards))


def _own(pid: int) -> bool:
    """Tell whether a process runs as the user who looks."""
    import psutil

    try:
        return psutil.Process(pid).uids().real == os.getuid()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def user(pid: int) -> str | None:
    """Return the login name of a process's owner; None when it ended or hides it."""
    import psutil

    try:
        return psutil.Process(pid).username()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


class Ancestry:
    """Parents of processes at one moment; each is asked for once, however many descend from it."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def of(self, pid: int) -> list[int]:
        """Return the pids of a process's parent, its parent's parent and so on."""
        chain: list[int] = []
        # A pid that is given anew meanwhile could close a circle.
        while (pid := self._parent(pid)) and pid not in chain:
            chain.append(pid)
        return chain

    def _parent(self, pid: int) -> int:
        if pid not in self._parents:
            self._parents[pid] = _parent(pid) if pid else 0
        return self._parents[pid]


def _parent(pid: int) -> int:
    """Return the parent's pid; 0 when there is none in sight."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as status:
            # After the name, which may hold anything and stands in parentheses.
            return int(status.read().rpartition(b")")[2].split()[1])
    except (ProcessLookupError, PermissionError):
        return 0
    except FileNotFoundError:
        return 0 if os.path.exists("/proc/self/stat") else _parent_without_proc(pid)


def _parent_without_proc(pid: int) -> int:
    import psutil

    try:
        return psutil.Process(pid).ppid()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0


def _listing(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return []


def _open_cards(descriptors: Iterable[Path]) -> Iterator[int]:
    for descriptor in descriptors:
        try:
            target = os.readlink(descriptor)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if match := _DEVICE_NODE.fullmatch(target):
            yield int(match[1])
