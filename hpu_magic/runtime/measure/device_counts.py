"""What the device has counted since the process began, by the vendor's metrics."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.runtime.device import device

# Frees are left out: Python's garbage collector frees during any cell.
_ACTIVITY = ("NumAllocs", "TotalSystemAllocs")


@dataclass(frozen=True)
class DeviceCounts:
    """The counts of one moment; compared with those of a later one.

    Attributes
    ----------
    compilations : int
        Graphs compiled.
    compile_seconds : float
        Seconds that took.
    fallbacks : dict of str to int
        Calls that ran on the CPU instead, by operator.
    activity : tuple of int
        Counts that grow whenever the device allocates memory.
    """

    compilations: int = 0
    compile_seconds: float = 0.0
    fallbacks: dict[str, int] = field(default_factory=dict)
    activity: tuple[int, ...] = ()

    @classmethod
    def now(cls) -> DeviceCounts:
        """Return the counts as they are; all zero before a card is taken."""
        if not device.taken():
            return cls()
        compiled, fallen = _statistics("graph_compilation"), _statistics("cpu_fallback")
        stats = sys.modules["torch"].hpu.memory_stats()
        return cls(
            int(compiled.get("TotalNumber", 0)),
            float(compiled.get("TotalTime", 0.0)) / 1e6,
            dict(fallen.get("FallbackOps", {})),
            tuple(stats.get(name, 0) for name in _ACTIVITY),
        )

    def since(self, before: DeviceCounts) -> DeviceCounts:
        """Return what was counted since ``before``; operators without a call are left out."""
        fallbacks = {
            name: int(growth(before.fallbacks.get(name, 0), count))
            for name, count in self.fallbacks.items()
        }
        return DeviceCounts(
            int(growth(before.compilations, self.compilations)),
            growth(before.compile_seconds, self.compile_seconds),
            {name: count for name, count in fallbacks.items() if count},
        )


def growth(before: float, after: float) -> float:
    """Return the growth of a count, which somebody may have reset to zero in between."""
    return after - before if after >= before else after


def _statistics(name: str) -> dict[str, Any]:
    try:
        from habana_frameworks.torch.hpu.metrics import metric_global
    except ImportError:
        return {}
    metric = metric_global(name)
    return dict(metric.stats()) if metric is not None else {}
