"""The charts of pace and of the device's memory."""

from __future__ import annotations

import math
from typing import Any

from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    DataRange1d,
    Range1d,
)
from bokeh.models.glyphs import HSpan, Line
from bokeh.models.widgets import Select

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.charts.axis import SharedAxis
from hpu_magic.panels.charts.figure import blank, drawn, hover
from hpu_magic.panels.charts.outbox import Outbox

__all__ = ["MemoryChart", "speed_chart"]

MEMORY_TITLE = "device memory, peak dashed"
_BYTES_TICKS = """
const step = [[2**40, "TiB"], [2**30, "GiB"], [2**20, "MiB"], [2**10, "KiB"]]
  .find(([scale]) => Math.abs(tick) >= scale)
return step ? +(tick / step[0]).toPrecision(4) + " " + step[1] : tick + " B"
"""
_SCALE = """
const limit = pool.data.limit[0] ?? NaN
const highest = lines.data.peak.reduce((most, one) => one > most ? one : most, 0)
const whole = scale.value === "card" && limit > 0
const end = whole ? Math.max(limit, highest) * 1.04 : (highest || 1) * 1.15
if (range.end !== end) range.end = end
"""
SCALES: list[Any] = [("card", "whole card"), ("data", "zoomed in")]


def speed_chart(axis: SharedAxis, lines: ColumnDataSource) -> Any:
    """Return the chart of steps per second."""
    height = palette.HEIGHTS["speed"]
    plot = blank(height, "steps per second", axis.range, DataRange1d(start=0), axis.ticks())
    line = drawn(lines, Line(x=axis.of(lines), y="speed", line_color=palette.SPEED, line_width=1.6))
    plot.renderers = [line]
    plot.tools = [hover(line, "@speed{0.0} steps/s at @time{0.0} s")]
    return plot


class MemoryChart:
    """Memory in use, its peak and its limit, which is the top unless the reader zooms in."""

    def __init__(self, axis: SharedAxis, lines: ColumnDataSource) -> None:
        self.scale = Select(options=SCALES, value="card")
        self._pool = ColumnDataSource({"limit": []})
        values = Range1d(start=0, end=1)
        height = palette.HEIGHTS["memory"]
        plot = self.plot = blank(height, MEMORY_TITLE, axis.range, values, axis.ticks())
        place, colour = axis.of(lines), palette.MEMORY
        look: dict[str, Any] = {"line_color": colour, "line_width": 1.6}
        line = drawn(lines, Line(x=place, y="in_use", **look))
        peak = drawn(lines, Line(x=place, y="peak", line_dash=[4, 3], **look))
        limit = HSpan(y="limit", line_color=palette.COMPILATION, line_width=1.2)
        plot.renderers = [line, peak, drawn(self._pool, limit)]
        binary = [2**power for power in range(10)]
        plot.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=binary, desired_num_ticks=3)
        plot.yaxis.formatter = CustomJSTickFormatter(code=_BYTES_TICKS)
        words = "@in_use{0.0 ib} in use, peak @peak{0.0 ib} at @time{0.0} s"
        plot.tools = [hover(line, words)]
        args = {"pool": self._pool, "lines": lines, "scale": self.scale, "range": values}
        scale = CustomJS(args=args, code=_SCALE)
        lines.js_on_change("streaming", scale)
        lines.js_on_change("data", scale)
        self._pool.js_on_change("data", scale)
        self.scale.js_on_change("value", scale)
        self._drawn = math.nan

    def set_limit(self, outbox: Outbox, limit: float) -> None:
        """Draw the size of the device's memory pool, in bytes."""
        if math.isnan(limit) or limit == self._drawn:
            return
        self._drawn = limit
        outbox.replace(self._pool, {"limit": [limit]}, 1)
        outbox.change(self.plot.title, "text", f"{MEMORY_TITLE}, of {units.size(limit)}")
