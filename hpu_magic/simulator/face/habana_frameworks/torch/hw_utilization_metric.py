"""Measure the hardware utilization, which is NaN for simulated cards."""

from __future__ import annotations

import math
from typing import NamedTuple


class Usage(NamedTuple):
    """Percentage of time during which the hardware was busy; NaN if unknown."""

    hl_smi: float
    esync: float


class HWUtilizationMetrics:
    """Measures the hardware utilization from `start` to `stop`.

    Simulated cards have no utilization counters, so their utilization is NaN.
    """

    def __init__(self) -> None:
        self._running = False

    def start(self) -> None:
        """Start a new measurement."""
        self._running = True

    resume = start

    def stop(self) -> None:
        """Stop the measurement."""
        self._running = False

    def get_usage(self) -> Usage:
        """Return the utilization, which is NaN for a simulated card."""
        return Usage(math.nan, math.nan)

    def display_usage(self) -> None:
        """Print the utilization."""
        for name, value in self.get_usage()._asdict().items():
            unknown = "N/A (a simulated card has no such counter)"
            print(f"{name}: {unknown if math.isnan(value) else f'{value:.1f} %'}")
