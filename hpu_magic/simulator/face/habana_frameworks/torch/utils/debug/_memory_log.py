"""Allocator log: memory statistics that are appended to a file.

The file is ``habana_log.livealloc.log_<rank>``; ``PT_HABANA_MEM_LOG_FILENAME`` overrides the part
before ``_<rank>``. The log has no rows for individual chunks, because the pool is a single chunk.
"""

from __future__ import annotations

import os
from pathlib import Path

from habana_frameworks.torch import hpu

_ROWS = (
    *("Limit", "InUse", "MaxInUse", "NumAllocs", "NumFrees", "ActiveAllocs", "MaxAllocSize"),
    *("TotalSystemAllocs", "TotalSystemFrees", "TotalActiveAllocs"),
)
_LABELS = {"TotalActiveAllocs": "TotActiveAllocs"}


def _memstat_livealloc(msg: str = "") -> None:
    """Append `msg` and the current memory statistics to the log."""
    _append(msg)


def _memstat_devmem_start_collect(msg: str = "", show_cs: bool = True) -> None:
    """Append memory statistics to the log, and reset the peak. Call stacks are not logged."""
    _append(msg)
    hpu.reset_peak_memory_stats()


_memstat_devmem_stop_collect = _memstat_livealloc  # includes the new peak


def _append(message: str) -> None:
    name = os.environ.get("PT_HABANA_MEM_LOG_FILENAME") or "habana_log.livealloc.log"
    rank = max(int(os.environ.get("RANK") or -1), 0)
    stats = hpu.memory_stats()
    lines = [message, *(f"{_LABELS.get(key, key)} : {stats[key]}" for key in _ROWS)]
    with Path(f"{name}_{rank}").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
