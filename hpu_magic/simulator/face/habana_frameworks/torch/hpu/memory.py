"""Memory statistics of the card, with the vendor's keys. Bytes, except where a key counts."""

from __future__ import annotations

import warnings
from typing import Any

from hpu_magic.simulator import engine

_MIB = 1 << 20
_GIB = 1 << 30


def memory_stats(device: Any = None) -> dict[str, int]:
    """Acquire the card and return its statistics.

    ``Limit``, ``InUse``, ``MaxInUse`` and ``MaxAllocSize`` are bytes, the others counts;
    the ``Total`` ones are never reset. ``InUse`` is the sum of the live storages: the
    real allocator adds a baseline and rounds each size up.
    """
    native = engine.load()
    native.acquire()
    return dict(native.memory_stats())


def memory_allocated(device: Any = None) -> int:
    """Return the bytes in use."""
    return memory_stats(device)["InUse"]


def max_memory_allocated(device: Any = None) -> int:
    """Return the peak of the bytes in use since the start or the last reset."""
    return memory_stats(device)["MaxInUse"]


def memory_reserved(device: Any = None) -> int:
    """Return the size of the pool in bytes, which is the whole card."""
    return memory_stats(device)["Limit"]


def max_memory_reserved(device: Any = None) -> int:
    """Return the size of the pool in bytes, which is the whole card."""
    return memory_stats(device)["Limit"]


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
    """Return free and total bytes."""
    stats = memory_stats(device)
    return stats["Limit"] - stats["InUse"], stats["Limit"]


def memory_usage(device: Any = None) -> int:
    """Return the bytes in use."""
    return memory_allocated(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Forget the peak; it reads 0 until the next allocation or free."""
    engine.load().reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Set the counts and the largest allocation to 0 and the peak to the bytes in use."""
    engine.load().reset_accumulated_memory_stats()


def memory_summary(device: Any = None) -> str:
    """Return the statistics as a table, in the vendor's layout."""
    stats = memory_stats(device)
    bar, rule = "|" + "=" * 52 + "|", "|" + "-" * 52 + "|"
    lines = [bar, f"|{'':7}PyTorch HPU memory summary, device ID {0:<6} |", rule]
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
    lines.append(bar)
    return "\n".join(lines)
