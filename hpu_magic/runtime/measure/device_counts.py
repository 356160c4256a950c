"""Count compilations and fallbacks since the process started, using the vendor's metrics."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hpu_magic.runtime.device import device

Number = TypeVar("Number", int, float)

# Deallocations are not counted, because Python's garbage collector can free memory during any cell.
_ACTIVITY = ("NumAllocs", "TotalSystemAllocs")


@dataclass(frozen=True)
class DeviceCounts:
    """Snapshot of the counts; use `since` to compute differences."""

    compilations: int = 0  # number of compiled graphs
    compile_seconds: float = 0.0  # total compilation time, in seconds
    fallbacks: dict[str, int] = field(default_factory=dict)
    """The number of calls that ran on the CPU, by operator."""
    activity: tuple[int, ...] = ()  # counts that increase when the device allocates memory

    @classmethod
    def now(cls) -> DeviceCounts:
        """Return the current counts, all of which are zero before a card is acquired."""
        if not device.taken():
            return cls()
        fallbacks = dict(_statistics("cpu_fallback").get("FallbackOps", {}))
        stats = sys.modules["torch"].hpu.memory_stats()
        return cls(*compilations(), fallbacks, tuple(stats.get(name, 0) for name in _ACTIVITY))

    def since(self, before: DeviceCounts) -> DeviceCounts:
        """Return the increase since ``before``, omitting operators that were not called."""
        fallbacks = {
            name: growth(before.fallbacks.get(name, 0), count)
            for name, count in self.fallbacks.items()
        }
        return DeviceCounts(
            growth(before.compilations, self.compilations),
            growth(before.compile_seconds, self.compile_seconds),
            {name: count for name, count in fallbacks.items() if count},
        )


def compilations() -> tuple[int, float]:
    """Return the number of compiled graphs and their total compilation time in seconds."""
    stats = _statistics("graph_compilation")
    return int(stats.get("TotalNumber", 0)), float(stats.get("TotalTime", 0.0)) / 1e6


def growth(before: Number, after: Number) -> Number:
    """Return the increase in a count, which may have been reset to zero in the meantime."""
    return after - before if after >= before else after


def _statistics(name: str) -> dict[str, Any]:
    try:
        from habana_frameworks.torch.hpu.metrics import metric_global
    except ImportError:
        return {}
    metric = metric_global(name)
    return dict(metric.stats()) if metric is not None else {}
