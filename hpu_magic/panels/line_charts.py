"""The charts of pace and device memory, which the live panel and the picture share.

To add a chart, add a `LineChart` to `LINE_CHARTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.record import RunRecord
from hpu_magic.runtime.present import drawing

NEARLY_FULL = 0.75
"""Share of the device's memory above which the axis of a memory chart extends to the limit."""


class Line(NamedTuple):
    """A column of `RunRecord.lines`, its style, and its name in the legend."""

    column: str
    color: str
    dashes: str = ""
    name: str = ""


@dataclass(frozen=True)
class LineChart:
    """A chart of a `RunRecord`'s columns over time."""

    name: str  # the chart's name in a panel's list of charts
    height: int  # pixels
    heading: str  # the title before the first sample
    lines: tuple[Line, ...]
    hover: str  # tooltip, in Bokeh's format
    title: Callable[[RunRecord], str]
    sentence: Callable[[RunRecord], str]  # description for screen readers; "" without samples
    of_memory: bool = False  # whether the axis is in bytes and can extend to the limit
    longest_title: str = ""  # the longest title, which the legend must not cover


def memory_title(peak: float, limit: float) -> str:
    """Return a title such as ``device memory: 12 MiB peak, 0.01 % of 96 GiB``.

    The peak and the limit are in bytes, or NaN if unknown.
    """
    title = "device memory"
    if math.isfinite(peak):
        title += f": {units.capacity(peak)} peak"
        if math.isfinite(limit) and limit > 0:
            title += f", {units.share(peak, limit)} of {units.capacity(limit)}"
    return title


def memory_ticks(highest: float, limit: float) -> list[float]:
    """Return round sizes from 0 to at least ``highest``, or to the limit if it is close."""
    if highest > NEARLY_FULL * limit:
        return [limit * share / 4 for share in range(5)][::2]
    top = max(highest, 4.0)
    unit = 1024.0 ** math.floor(math.log(top, 1024))
    return [unit * tick for tick in drawing.round_numbers(0.0, top / unit, 3)]


def _memory_sentence(record: RunRecord) -> str:
    if not (in_use := _known(record, "in_use")):
        return ""
    peak = max(_known(record, "peak") or in_use)
    has_limit = math.isfinite(record.limit)
    share = f", {units.share(peak, record.limit)}" if has_limit else ""
    limit = f" of {units.capacity(record.limit)}" if has_limit else ""
    return (
        f"Device memory: {units.size(in_use[-1])} in use at the end, "
        f"at most {units.size(peak)}{share}{limit}"
    )


def _last(words: str, record: RunRecord, column: str, write: Callable[[float], str]) -> str:
    """Return ``<words>: <last value> at the end``, or "" if the column has no values."""
    values = _known(record, column)
    return f"{words}: {write(values[-1])} at the end" if values else ""


def _known(record: RunRecord, column: str) -> list[float]:
    return [value for value in record.lines.data()[column] if math.isfinite(value)]


SPEED = LineChart(
    "speed",
    96,
    "steps per second",
    (Line("speed", palette.SPEED),),
    hover="@speed{0.0} steps/s at @time{0.0} s",
    title=lambda record: "steps per second",
    sentence=lambda record: _last("Pace", record, "speed", units.rate),
)
MEMORY = LineChart(
    "memory",
    120,
    "device memory",
    (
        Line("in_use", palette.MEMORY, "", "in use"),
        Line("peak", palette.MEMORY, "4 3", "peak"),
    ),
    hover="@in_use{0.0 ib} in use, peak @peak{0.0 ib} at @time{0.0} s",
    title=lambda record: memory_title(record.peak, record.limit),
    sentence=_memory_sentence,
    of_memory=True,
    longest_title=memory_title(99.9 * 2**20, 96 * 2**30),
)
LINE_CHARTS = (SPEED, MEMORY)
"""The charts below the metric charts, from top to bottom."""

METRICS = "loss"
"""Name that represents all metric charts in a panel's list of charts."""

KINDS = (METRICS, *(chart.name for chart in LINE_CHARTS))
"""All charts of a fit that runs on the device, from top to bottom."""
