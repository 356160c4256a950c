"""How busy the hardware was over a stretch of time: not known of a simulated card."""

from __future__ import annotations

import math
from typing import NamedTuple


class Usage(NamedTuple):
    """Shares of the time in which the hardware was busy, in percent; NaN where nobody knows."""

    hl_smi: float
    esync: float


class HWUtilizationMetrics:
    """Measure the hardware's use from `start` to `stop`.

    A simulated card has no such counters, and none is invented: its usage is NaN.
    """

    def __init__(self) -> None:
        self._running = False

    def start(self) -> None:
        """Forget what was measured, and measure from now on."""
        self._running = True

    def resume(self) -> None:
        """Measure again after `stop`, on top of what was measured."""
        self._running = True

    def stop(self) -> None:
        """Measure no longer."""
        self._running = False

    def get_usage(self) -> Usage:
        """Return the usage: NaN, on a simulated card."""
        return Usage(math.nan, math.nan)

    def display_usage(self) -> None:
        """Print the usage."""
        for name, value in self.get_usage()._asdict().items():
            known = "N/A (a simulated card has no such counter)"
            print(f"{name}: {known if math.isnan(value) else f'{value:.1f} %'}")
