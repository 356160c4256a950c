"""Find processes that have a card's device node open; they may exit during the search."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hpu_magic.holders import Holder, holder
from hpu_magic.monitor.reading import Snapshot
from hpu_magic.program_name import full_command

# Monitoring programs open control nodes (accel_controlD0, hl_controlD0) without holding cards.
_DEVICE_NODE = re.compile(r"/dev/(?:accel/accel|hl)([0-9]+)")
# Folders in /sys/class that map device nodes to cards on the bus.
_NODES = (("accel", re.compile(r"accel([0-9]+)")), ("habanalabs", re.compile(r"hl([0-9]+)")))


@dataclass(frozen=True)
class DeviceHolders:
    """Processes that have a card's device node open, keyed by the card's minor number.

    `hidden` indicates whether there are processes that only root can examine.
    """

    by_minor: dict[int, tuple[Holder, ...]]
    hidden: bool = False


def device_holders(proc: Path = Path("/proc")) -> DeviceHolders:
    """Return the processes that have a card's device node open, according to ``/proc``."""
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
            process = describe(int(entry))
            for minor in minors:
                found[minor].append(process)
    return DeviceHolders({minor: tuple(holders) for minor, holders in found.items()}, hidden)


def minors_by_bus(classes: Path = Path("/sys/class")) -> dict[str, int]:
    """Return the minor number of each card, keyed by its PCI address in lowercase."""
    minors = {}
    for folder, node in _NODES:
        for entry in _listing(classes / folder):
            if match := node.fullmatch(entry):
                minors[(classes / folder / entry / "device").resolve().name.lower()] = int(match[1])
    return minors


def describe(pid: int) -> Holder:
    """Describe a process as a holder, including its user."""
    return with_user(holder(pid))


def with_user(holder: Holder) -> Holder:
    """Return the holder with the login name of its owner, if that is visible."""
    import psutil

    try:
        return replace(holder, user=psutil.Process(holder.pid).username()) if holder.pid else holder
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return holder


def with_arguments(snapshot: Snapshot, *, of_others: bool = False) -> Snapshot:
    """Return a snapshot whose holders show their command lines, truncated to 80 characters.

    Kernels are still shown with the names of their notebooks. Only this user's processes are
    changed, unless `of_others` is true, in which case all readable processes are changed.
    """

    def shown(holder: Holder) -> Holder:
        if not holder.pid or not (of_others or _own(holder.pid)):
            return holder
        try:
            return replace(holder, command=full_command(holder.pid))
        except PermissionError:
            return holder

    cards = (replace(card, holders=tuple(map(shown, card.holders))) for card in snapshot.cards)
    return replace(snapshot, cards=tuple(cards))


def _own(pid: int) -> bool:
    """Return whether a process runs as this user."""
    import psutil

    try:
        return psutil.Process(pid).uids().real == os.getuid()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def ancestors(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return for each process the PIDs of its parent, its parent's parent, and so on.

    The list is empty if the process does not exist.
    """
    parents: dict[int, int] = {}  # processes of one server have most of their ancestors in common

    def of(pid: int) -> list[int]:
        found: list[int] = []
        while True:
            if pid not in parents:
                parents[pid] = _parent(pid)
            pid = parents[pid]
            if pid == 0 or pid in found:
                return found
            found.append(pid)

    return {pid: of(pid) for pid in pids}


def _parent(pid: int) -> int:
    """Return the PID of a process's parent, or 0 if there is none."""
    import psutil

    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
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
