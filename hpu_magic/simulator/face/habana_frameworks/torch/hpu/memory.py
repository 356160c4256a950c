"""Memory statistics of the card, in bytes or counts, with the vendor's keys."""

from __future__ import annotations

import warnings
from typing import Any

from habana_frameworks.torch.hpu import _shared_usage

from hpu_magic.simulator import engine

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30
_BAR = "|" + "=" * 52 + "|"
_HEADER = (
    _BAR,
    f"|{'':7}PyTorch HPU memory summary, device ID {0:<6} |",
    "|" + "-" * 52 + "|",
)
_COUNTS = frozenset(
    {
        "NumAllocs",
        "NumFrees",
        "ActiveAllocs",
        "TotalSystemAllocs",
        "TotalSystemFrees",
        "TotalActiveAllocs",
        "num_allocs",
        "num_free",
        "active_allocs",
    }
)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Acquire the card and return its statistics.

    ``Limit``, ``InUse``, ``MaxInUse`` and ``MaxAllocSize`` are in bytes; the other values are
    counts. Values whose keys contain ``Total`` are never reset. ``InUse`` is the total size of all
    live storages; the real allocator also adds a baseline and rounds up each size.
    """
    native = engine.load()
    native.acquire()
    return dict(native.memory_stats())


def memory_allocated(device: Any = None) -> int:
    """Return the number of bytes in use."""
    return memory_stats(device)["InUse"]


def max_memory_allocated(device: Any = None) -> int:
    """Return the peak memory usage in bytes since the start or the last reset."""
    return memory_stats(device)["MaxInUse"]


def memory_reserved(device: Any = None) -> int:
    """Return the size of the memory pool in bytes, which is the limit of the card."""
    return memory_stats(device)["Limit"]


max_memory_reserved = memory_reserved
memory_usage = memory_allocated


def memory_cached(device: Any = None) -> int:
    """Deprecated: see `memory_reserved`."""
    warnings.warn(
        "torch.hpu.memory_cached is now torch.hpu.memory_reserved", FutureWarning, stacklevel=2
    )
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """Deprecated: see `max_memory_reserved`."""
    warnings.warn(
        "torch.hpu.max_memory_cached is now torch.hpu.max_memory_reserved",
        FutureWarning,
        stacklevel=2,
    )
    return max_memory_reserved(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free and total memory in bytes."""
    stats = memory_stats(device)
    return stats["Limit"] - stats["InUse"], stats["Limit"]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Reset the peak to 0, until the next allocation or free."""
    engine.load().reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Reset the counts and the largest allocation to 0, and the peak to the memory in use."""
    engine.load().reset_accumulated_memory_stats()


def memory_summary(device: Any = None) -> str:
    """Return the statistics as a table, in the vendor's layout."""
    stats = memory_stats(device)
    lines = list(_HEADER)
    for key, size, unit in (
        ("Limit", _GIB, "GB"),
        ("InUse", _MIB, "MB"),
        ("MaxInUse", _MIB, "MB"),
        ("NumAllocs", 0, ""),
        ("NumFrees", 0, ""),
        ("MaxAllocSize", _MIB, "MB"),
        ("ActiveAllocs", 0, ""),
    ):
        converted = f"({stats[key] / size:.2f} {unit})" if size else ""
        lines.append(f"|{key:<14}{stats[key]:>20} {converted:<17}|")
    lines.append(_BAR)
    return "\n".join(lines)


def formatted_memory_stats(device: Any = None) -> str:
    """Return the statistics as text, one per line, with sizes in bytes, KB, MB and GB."""
    lines = ["PyTorch HPU memory stats, device ID 0"]
    for key, value in memory_stats(device).items():
        sizes = f" ({value / _KIB:.2f} KB, {value / _MIB:.2f} MB, {value / _GIB:.2f} GB)"
        lines.append(f"{key:<39}:-{value}{'' if key in _COUNTS else sizes}")
    return "\n".join(lines)


def _get_hlml_shared_object_name() -> str:
    """Acquire the card, and return the name of a shared-memory object with its memory usage.

    The object is a file in ``/dev/shm`` that contains three unsigned 64-bit integers: the version
    (1), the seconds since the epoch, and the number of bytes in use. A thread updates the object
    every second until the process ends. Raises RuntimeError if the object cannot be created.
    """
    engine.load().acquire()
    return _shared_usage.name()


def _extended_memory_summary_dict(device: Any = None) -> dict[str, int]:
    """Return a breakdown of the memory pool.

    All memory in use belongs to tensors, because simulated operations need no workspace and do not
    delay frees. The free memory is a single contiguous chunk.
    """
    stats = memory_stats(device)
    return {
        "limit": stats["Limit"],
        "in_use": stats["InUse"],
        "persistent": stats["InUse"],
        "workspace": 0,
        "last_workspace": 0,
        "future": 0,
        "max_cntgs_chunk": stats["Limit"] - stats["InUse"],
        "max_in_use": stats["MaxInUse"],
        "num_allocs": stats["NumAllocs"],
        "num_free": stats["NumFrees"],
        "max_alloc_size": stats["MaxAllocSize"],
        "active_allocs": stats["ActiveAllocs"],
    }


def _extended_memory_summary(device: Any = None) -> str:
    """Return a breakdown of the memory pool as a table."""
    lines = list(_HEADER)
    for key, value in _extended_memory_summary_dict(device).items():
        text = f"{value}" if key in _COUNTS else f"{value} ({value / _GIB:.2f}) GB"
        lines.append(f"|{key:<20}{text:>32}|")
    return "\n".join([*lines, _BAR])
