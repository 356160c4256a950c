"""The charts of pace and of the device's memory."""

from __future__ import annotations

import math
from typing import Any

from bokeh.core.properties import value
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    DataRange1d,
    Range1d,
)
from bokeh.models.annotations import Legend, LegendItem
from bokeh.models.glyphs import HSpan, Line
from bokeh.models.widgets import Select

from hpu_magic.panels import palette
from hpu_magic.panels.charts.axis import SharedAxis
from hpu_magic.panels.charts.figure import blank, dash_lengths, drawn, hover, quiet_legend
from hpu_magic.panels.charts.outbox import Outbox
from hpu_magic.panels.memory_chart import LEGEND, NEARLY_FULL, memory_title

_BYTES_TICKS = """
const step = [[2**40, "TiB"], [2**30, "GiB"], [2**20, "MiB"], [2**10, "KiB"]]
  .find(([scale]) => Math.abs(tick) >= scale)
return step ? +(tick / step[0]).toPrecision(4) + " " + step[1] : tick + " B"
"""
_SCALE = """
const limit = pool.data.limit[0] ?? NaN
const highest = lines.data.peak.reduce((most, one) => one > most ? one : most, 0)
const whole = limit > 0 && (scale.value === "card" || highest > nearly_full * limit)
const end = whole ? Math.max(limit, highest) * 1.04 : Math.max(highest, 4) * 1.15
if (range.end !== end) range.end = end
"""
SCALES: list[Any] = [("data", "range in use"), ("card", "whole card")]


def speed_chart(axis: SharedAxis, lines: ColumnDataSource) -> Any:
    """Return the chart of steps per second."""
    height = palette.HEIGHTS["speed"]
    plot = blank(height, "steps per second", axis.range, DataRange1d(start=0), axis.ticks())
    line = drawn(lines, Line(x=axis.of(lines), y="speed", line_color=palette.SPEED, line_width=1.6))
    plot.renderers = [line]
    plot.tools = [hover(line, "@speed{0.0} steps/s at @time{0.0} s")]
    return plot


class MemoryChart:
    """Memory in use, its peak and its limit, which is seen if it is near or the reader wants it."""

    def __init__(self, axis: SharedAxis, lines: ColumnDataSource) -> None:
        self.scale = Select(options=SCALES, value="data")
        self._pool = ColumnDataSource({"limit": []})
        values = Range1d(start=0, end=1)
        height = palette.HEIGHTS["memory"]
        self._title = memory_title(math.nan, math.nan)
        plot = self.plot = blank(height, self._title, axis.range, values, axis.ticks())
        place = axis.of(lines)
        line, peak = (
            drawn(lines, Line(x=place, y=name, **_look(dashes)))
            for name, (_, dashes) in zip(("in_use", "peak"), LEGEND, strict=True)
        )
        self._add_legend()
        limit = HSpan(y="limit", line_color=palette.COMPILATION, line_width=1.2)
        plot.renderers = [*plot.renderers, line, peak, drawn(self._pool, limit)]
        binary = [2**power for power in range(10)]
        plot.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=binary, desired_num_ticks=3)
        plot.yaxis.formatter = CustomJSTickFormatter(code=_BYTES_TICKS)
        words = "@in_use{0.0 ib} in use, peak @peak{0.0 ib} at @time{0.0} s"
        plot.tools = [hover(line, words)]
        args = {"pool": self._pool, "lines": lines, "scale": self.scale, "range": values}
        scale = CustomJS(args={**args, "nearly_full": NEARLY_FULL}, code=_SCALE)
        lines.js_on_change("streaming", scale)
        lines.js_on_change("data", scale)
        self._pool.js_on_change("data", scale)
        self.scale.js_on_change("value", scale)
        self._drawn = math.nan

    def _add_legend(self) -> None:
        """Name the lines, by samples over data that never changes; see `MetricChart`."""
        never = ColumnDataSource({"time": [math.nan], "value": [math.nan]}, syncable=False)
        items = []
        for word, dashes in LEGEND:
            sample = drawn(never, Line(x="time", y="value", **_look(dashes)))
            self.plot.renderers = [*self.plot.renderers, sample]
            items.append(LegendItem(label=value(word), renderers=[sample]))
        legend = Legend()
        quiet_legend(legend, memory_title(99.9 * 2**20, 96 * 2**30), items)
        self.plot.add_layout(legend, "above")

    def describe(self, outbox: Outbox, peak: float, limit: float) -> None:
        """Draw the size of the device's memory pool and name the peak, both in bytes."""
        if not math.isnan(limit) and limit != self._drawn:
            self._drawn = limit
            outbox.replace(self._pool, {"limit": [limit]}, 1)
        if (title := memory_title(peak, limit)) != self._title:
            self._title = title
            outbox.change(self.plot.title, "text", title)


def _look(dashes: str) -> dict[str, Any]:
    return {
        "line_color": palette.MEMORY,
        "line_width": 1.6,
        "line_dash": dash_lengths(dashes),
    }
