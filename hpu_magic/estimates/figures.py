"""Figures of estimates as people read them: with their band, and by what they are spent on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpu_magic import units
from hpu_magic.estimates.by_module import ModuleShare, alike
from hpu_magic.estimates.cost.compilation import BAND
from hpu_magic.runtime.present.report import Row

_SLOWEST = 5
_LEAST = 0.005
"""Shares of the time below this are not shown."""


def note(rows: str) -> str:
    """Return what an estimate is, whose band comes from `rows`."""
    return (
        "No card has run this: an estimate from the operations that would run, with the band of "
        f"{rows}."
    )


def duration(seconds: float, band: tuple[float, float]) -> str:
    """Write a time with its band."""
    low, high = band
    return _with_band(units.duration, seconds, seconds * low, seconds * high)


def rate(per_second: float, what: str, band: tuple[float, float]) -> str:
    """Write a frequency with the band of the time that it comes from."""
    low, high = band
    return _with_band(
        lambda one: units.rate(one, what), per_second, per_second / high, per_second / low
    )


def compilation(seconds: float) -> list[Row]:
    """Return what is compiled at first, if anything is."""
    return [("compiled at first", duration(seconds, BAND))] if seconds else []


def memory(used: int, limit: int) -> str:
    """Write the memory of a card that is used next to all of it."""
    return f"{units.usage(used, limit)} (estimate)"


def times(by_kind: Mapping[str, float]) -> list[Row]:
    """Return the shares of the time, the largest first."""
    total = sum(by_kind.values())
    return [
        (f"time: {kind}", _percent(seconds / total))
        for kind, seconds in sorted(by_kind.items(), key=lambda one: -one[1])
        if total and seconds >= _LEAST * total
    ]


def slowest(model: ModuleShare) -> list[Row]:
    """Return the modules that take most by themselves, each with what binds it."""
    return [
        (f"slowest: {one.name}", f"{_percent(one.seconds / model.seconds)}, {one.limit}")
        for one in list(alike(model).values())[:_SLOWEST]
    ]


def _with_band(write: Callable[[float], str], value: float, low: float, high: float) -> str:
    return f"{write(value)} (estimate; {write(low)} to {write(high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
