"""Check the host's memory, shared memory and huge pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from hpu_magic import units
from hpu_magic.health.finding import Finding, Value
from hpu_magic.health.machine import Machine

_LITTLE_MEMORY = 1 << 30
_LITTLE_SHARED = 1 << 30
_FULL_SHARED = 64 << 20
# cgroup folders (v2 and v1), with the names of the memory limit and usage files.
_LIMITS = (
    ("/sys/fs/cgroup{own}", "memory.max", "memory.current"),
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def memory(machine: Machine) -> Iterator[Finding]:
    """Check the memory of the host or the container."""
    meminfo = machine.text("/proc/meminfo") or ""
    total, available = _kibibytes(meminfo, "MemTotal"), _kibibytes(meminfo, "MemAvailable")
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
        text = (
            f"{where} has only {units.size(available)} of {units.capacity(total)} of memory free."
        )
        fix = (
            "End processes that use memory, before the Linux kernel kills others, such as "
            "notebooks."
        )
        yield Finding("memory", "red", text, fix, values)
    elif not machine.simulated and total < card:
        text += (
            f" A card has more memory ({units.capacity(card)}): models that fill a card may fail "
            "to load, because they are loaded through host memory."
        )
        fix = "Load such models in shards, or on a host with more memory."
        yield Finding("memory", "amber", text, fix, values)
    else:
        yield Finding("memory", "green", text, values=values)


def shared_memory(machine: Machine) -> Iterator[Finding]:
    """Check ``/dev/shm``, through which DataLoader workers pass their batches."""
    try:
        status = os.statvfs(machine.path("/dev/shm"))
    except OSError:
        text = "/dev/shm does not exist: DataLoader workers cannot pass their batches."
        fix = "Run `sudo mount -t tmpfs tmpfs /dev/shm`."
        yield Finding("/dev/shm", "red", text, fix)
        return
    yield _shared_memory(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


def _shared_memory(total: int, free: int) -> Finding:
    values = {"total": total, "free": free}
    if free < _FULL_SHARED:
        text = (
            f"/dev/shm has {units.size(free)} of {units.capacity(total)} free: DataLoader workers "
            'crash with a "bus error" if their batches do not fit.'
        )
    elif total < _LITTLE_SHARED:
        text = (
            f"/dev/shm has only {units.capacity(total)}: DataLoader workers may crash with a "
            '"bus error" if their batches do not fit.'
        )
    else:
        text = f"/dev/shm has {units.size(free)} of {units.capacity(total)} free."
        return Finding("/dev/shm", "green", text, values=values)
    fix = "Start the container with `--ipc=host` or `--shm-size=16g`, or remove files in it."
    return Finding("/dev/shm", "red" if free < _FULL_SHARED else "amber", text, fix, values)


def huge_pages(machine: Machine) -> Iterator[Finding]:
    """Check the huge pages reserved on the host, which the bridge may use for buffers."""
    meminfo = machine.text("/proc/meminfo") or ""
    count = re.search(r"^HugePages_Total:\s*(\d+)", meminfo, re.MULTILINE)
    size = _kibibytes(meminfo, "Hugepagesize")
    if count is None or size is None:
        return
    reserved = int(count[1]) * size
    limit = machine.environment.get("PT_HPU_HUGE_PAGES_LIMIT_MB", "")
    values: dict[str, Value] = {"pages": int(count[1]), "page_size": size, "reserved": reserved}
    together = f", {units.capacity(reserved)}" if reserved else ""
    text = f"{count[1]} huge pages of {units.capacity(size)} are reserved{together}."
    if machine.simulated:
        text += " The simulator does not use huge pages."
        yield Finding("huge pages", "green", text, values=values)
    elif limit.isdecimal() and int(limit) << 20 > reserved:
        text += f" PT_HPU_HUGE_PAGES_LIMIT_MB={limit} allows the bridge to use more huge pages."
        yield Finding("huge pages", "amber", text, _reserve(int(limit) << 20, size), values)
    elif not reserved:
        text += " Without huge pages for its host buffers, the bridge may fail or be slow."
        fix = (
            "Reserve the number given in the installation guide of your release: `sudo sysctl -w "
            "vm.nr_hugepages=N`."
        )
        yield Finding("huge pages", "amber", text, fix, values)
    else:
        yield Finding("huge pages", "green", text, values=values)


def _reserve(wanted: int, size: int) -> str:
    return f"Run `sudo sysctl -w vm.nr_hugepages={-(-wanted // size)}`, or lower the limit."


def _kibibytes(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else None


def _bytes(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdecimal() else None
