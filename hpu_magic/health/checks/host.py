"""The host: its memory, shared memory, huge pages, and the folders of this user's own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from hpu_magic import private_folder, units
from hpu_magic.health.finding import Finding, Value
from hpu_magic.health.machine import Machine

_LITTLE_MEMORY = 1 << 30
_LITTLE_SHARED = 1 << 30
_FULL_SHARED = 64 << 20
# What control groups, of version 2 and 1, call the most that they may have, and what they have.
_LIMITS = (
    ("/sys/fs/cgroup{own}", "memory.max", "memory.current"),
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def memory(machine: Machine) -> Iterator[Finding]:
    """Look at the memory of the host, or of the container."""
    told = machine.text("/proc/meminfo") or ""
    total, available = _kibibytes(told, "MemTotal"), _kibibytes(told, "MemAvailable")
    if total is None or available is None:
        return
    where = "The host"
    own = re.search(r"^0::(/.+)$", machine.text("/proc/self/cgroup") or "", re.MULTILINE)
    for place, limit, usage in _LIMITS:
        group = place.format(own=own[1] if own else "")
        most = _bytes(machine.text(f"{group}/{limit}"))
        used = _bytes(machine.text(f"{group}/{usage}"))
        if most is not None and used is not None and most < total:
            where, total, available = (
                "The container or job",
                most,
                min(available, max(0, most - used)),
            )
            break
    values = {"total": total, "available": available}
    text = f"{where} has {units.usage(total - available, total)} of memory in use."
    card = max((card.memory_total or 0 for card in machine.cards.cards), default=0)
    if available < _LITTLE_MEMORY:
        text = f"{where} has only {units.size(available)} of {units.capacity(total)} memory free."
        fix = "End what needs it; the kernel of Linux ends processes, such as notebooks, otherwise."
        yield Finding("memory", "red", text, fix, values)
    elif not machine.simulated and total < card:
        text += f" That is less than a card has ({units.capacity(card)}): models that fill a card "
        text += "may not load, as they come through the host."
        fix = "Load them in shards, or on a host with more memory."
        yield Finding("memory", "amber", text, fix, values)
    else:
        yield Finding("memory", "green", text, values=values)


def shared_memory(machine: Machine) -> Iterator[Finding]:
    """Look at ``/dev/shm``, through which workers of a loader hand over their batches."""
    try:
        status = os.statvfs(machine.path("/dev/shm"))
    except OSError:
        text = "There is no /dev/shm: loaders with workers cannot hand over their batches."
        fix = "Mount it: `sudo mount -t tmpfs tmpfs /dev/shm`."
        yield Finding("/dev/shm", "red", text, fix)
        return
    yield judged_shared_memory(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def judged_shared_memory(total: int, free: int) -> Finding:
    """Judge the size of shared memory, and what is left of it.

    Parameters
    ----------
    total, free : int
        Bytes.
    """
    values = {"total": total, "free": free}
    if free < _FULL_SHARED:
        text = (
            f"/dev/shm has {units.size(free)} of {units.capacity(total)} left: loaders with "
            'workers die of a "bus error" where their batches do not fit.'
        )
    elif total < _LITTLE_SHARED:
        text = (
            f"/dev/shm has {units.capacity(total)}: loaders with workers may die of a "
            '"bus error" where their batches do not fit.'
        )
    else:
        text = f"/dev/shm has {units.size(free)} of {units.capacity(total)} free."
        return Finding("/dev/shm", "green", text, values=values)
    fix = "Start the container with `--ipc=host` or `--shm-size=16g`, or remove what lies there."
    return Finding("/dev/shm", "red" if free < _FULL_SHARED else "amber", text, fix, values)


def huge_pages(machine: Machine) -> Iterator[Finding]:
    """Look at the huge pages that the host sets aside, from which the bridge may take buffers."""
    told = machine.text("/proc/meminfo") or ""
    count = re.search(r"^HugePages_Total:\s*(\d+)", told, re.MULTILINE)
    size = _kibibytes(told, "Hugepagesize")
    if count is None or size is None:
        return
    reserved = int(count[1]) * size
    asked = machine.environment.get("PT_HPU_HUGE_PAGES_LIMIT_MB", "")
    values: dict[str, Value] = {"pages": int(count[1]), "page_size": size, "reserved": reserved}
    together = f", {units.capacity(reserved)}" if reserved else ""
    text = f"{count[1]} huge pages of {units.capacity(size)} are set aside{together}."
    if machine.simulated:
        text += " The simulator takes none."
        yield Finding("huge pages", "green", text, values=values)
    elif asked.isdecimal() and int(asked) << 20 > reserved:
        text += f" PT_HPU_HUGE_PAGES_LIMIT_MB={asked} allows the bridge more, which it may miss."
        yield Finding("huge pages", "amber", text, _reserve(int(asked) << 20, size), values)
    elif not reserved:
        text += " The bridge may take host buffers from them, and then fail or be slow without any."
        fix = (
            "Set aside what your release's installation guide asks for: "
            "`sudo sysctl -w vm.nr_hugepages=N`."
        )
        yield Finding("huge pages", "amber", text, fix, values)
    else:
        yield Finding("huge pages", "green", text, values=values)


def home(machine: Machine) -> Iterator[Finding]:
    """Look whether this user has a home that can be written."""
    folder = machine.home
    fix = "Set HOME to a folder of your own before Python starts."
    private = {"folder": str(folder)}
    if not folder.is_absolute():
        text = (
            "The system knows no home of this user, and HOME names none: caches, logs and what "
            "Jupyter keeps have no place."
        )
        yield Finding("home", "amber", text, fix, {"writable": False})
    elif folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        text = "The home {folder} can be written."
        yield Finding("home", "green", text, values={"writable": True}, private=private)
    else:
        text = (
            "The home {folder} cannot be written by this user: caches, logs and what Jupyter keeps "
            "may have no place."
        )
        yield Finding("home", "amber", text, fix, {"writable": False}, private)


def own_folder(machine: Machine) -> Iterator[Finding]:
    """Look for the folder in which processes of this user tell each other of cards and fits."""
    first, *others = private_folder.places()
    there = private_folder.found()
    # It is not made here: who looks changes nothing.
    free = (place for place in (first, *others) if _can_be_made(place))
    folder = there or next(free, None)
    if folder is None:
        text = (
            "There is no folder that only you may enter: kernels, the sidebar and `hpu-magic "
            "top` cannot tell each other of notebooks and fits."
        )
        fix = "Have /dev/shm or /tmp writable, or remove what has taken {folder}."
        yield Finding("private folder", "red", text, fix, private={"folder": str(first)})
        return
    taken = first.exists() and not private_folder.is_private(first)
    private = {"folder": str(folder)}
    if not taken:
        text = "The folder {folder} is yours alone."
        if there is None:
            text = "The folder {folder} will be yours alone; the first session makes it."
        yield Finding("private folder", "green", text, values={"taken": False}, private=private)
        return
    yield Finding(
        "private folder",
        "amber",
        "{first} is not yours alone, so {folder} is used: processes that were started before that "
        "may look for the other.",
        "Remove {first}, or have its owner do so, and restart the kernels.",
        {"taken": True},
        private | {"first": str(first)},
    )


def _can_be_made(folder: Path) -> bool:
    return not os.path.lexists(folder) and os.access(folder.parent, os.W_OK | os.X_OK)


def _reserve(wanted: int, size: int) -> str:
    return f"Run `sudo sysctl -w vm.nr_hugepages={-(-wanted // size)}`, or allow less."


def _kibibytes(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else None


def _bytes(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdecimal() else None
