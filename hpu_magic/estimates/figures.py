"""Format the rows of an estimate's table: values with their error bands, and shares of the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpu_magic import units
from hpu_magic.estimates.by_module import ModuleShare, alike
from hpu_magic.runtime.present.report import Row

_SLOWEST = 5
_LEAST = 0.005
"""Shares of the time that are smaller than this are omitted."""


def note(rows: str) -> str:
    """Return a note that describes the measurements on which an estimate's error band is based."""
    return (
        "These figures are not measurements: they are estimated from the model's operations, and "
        f"the band is based on {rows}."
    )


def duration(seconds: float, band: tuple[float, float]) -> str:
    """Format a time with its error band."""
    low, high = band
    return _with_band(units.duration, seconds, seconds * low, seconds * high)


def rate(per_second: float, what: str, band: tuple[float, float]) -> str:
    """Format a rate, given the error band of the time."""
    low, high = band
    return _with_band(
        lambda value: units.rate(value, what), per_second, per_second / high, per_second / low
    )


def compilation(seconds: float) -> list[Row]:
    """Return the row for the compilation time, or no rows if nothing is compiled."""
    from hpu_magic.estimates.cost.pricing import COMPILATION_BAND  # imports torch

    return [("compilation", duration(seconds, COMPILATION_BAND))] if seconds else []


def memory(used: int, limit: int) -> str:
    """Format the memory usage of a card along with its limit."""
    return f"{units.usage(used, limit)} (estimate)"


def times(by_kind: Mapping[str, float]) -> list[Row]:
    """Return a row for each limiting resource with its share of the time, largest first."""
    total = sum(by_kind.values())
    return [
        (f"time: {kind}", _percent(seconds / total))
        for kind, seconds in sorted(by_kind.items(), key=lambda item: -item[1])
        if total and seconds >= _LEAST * total
    ]


def slowest(model: ModuleShare) -> list[Row]:
    """Return rows with the slowest modules, excluding their submodules, and what limits them."""
    return [
        (f"slowest: {module.name}", f"{_percent(module.seconds / model.seconds)}, {module.limit}")
        for module in list(alike(model).values())[:_SLOWEST]
    ]


def _with_band(write: Callable[[float], str], value: float, low: float, high: float) -> str:
    return f"{write(value)} (estimate; {write(low)} to {write(high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
