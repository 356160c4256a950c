"""Render the charts in `line_charts` with Bokeh."""

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
from bokeh.models.glyphs import HSpan
from bokeh.models.glyphs import Line as LineGlyph
from bokeh.models.widgets import Select

from hpu_magic.panels import palette
from hpu_magic.panels.charts.axis import SharedAxis
from hpu_magic.panels.charts.figure import blank, dash_lengths, drawn, hover, quiet_legend
from hpu_magic.panels.charts.outbox import Outbox
from hpu_magic.panels.line_charts import NEARLY_FULL, Line, LineChart
from hpu_magic.panels.record import RunRecord

_BYTES_TICKS = """
const step = [[2**40, "TiB"], [2**30, "GiB"], [2**20, "MiB"], [2**10, "KiB"]]
  .find(([scale]) => Math.abs(tick) >= scale)
return step ? +(tick / step[0]).toPrecision(4) + " " + step[1] : tick + " B"
"""
_SCALE = """
const limit = pool.data.limit[0] ?? NaN
let highest = 0
for (const column of columns) {
  for (const value of lines.data[column]) if (value > highest) highest = value
}
const whole = limit > 0 && (scale.value === "card" || highest > nearly_full * limit)
const end = whole ? Math.max(limit, highest) * 1.04 : Math.max(highest, 4) * 1.15
if (range.end !== end) range.end = end
"""
SCALES: list[Any] = [("data", "range in use"), ("card", "whole card")]


class LinePlot:
    """A chart of a record's columns, which are read from the source ``lines``.

    In a memory chart, ``scale`` switches between the range in use and the whole card.
    """

    def __init__(self, chart: LineChart, axis: SharedAxis, lines: ColumnDataSource) -> None:
        self.chart = chart
        self.scale: Select | None = None
        self._title = chart.heading
        self._limit = math.nan
        self._pool = ColumnDataSource({"limit": []})
        values = Range1d(start=0, end=1) if chart.of_memory else DataRange1d(start=0)
        plot = self.plot = blank(chart.height, chart.heading, axis.range, values, axis.ticks())
        place = axis.of(lines)
        renderers = [
            drawn(lines, LineGlyph(x=place, y=line.column, **_look(line))) for line in chart.lines
        ]
        if len(renderers) > 1:
            self._add_legend()
        plot.renderers = [*plot.renderers, *renderers]
        if chart.of_memory:
            self._add_limit(lines)
        plot.tools = [hover(renderers[:1], chart.hover)]

    def _add_legend(self) -> None:
        """Add a legend whose line samples have constant data; see `MetricChart`."""
        constant = ColumnDataSource({"time": [math.nan], "value": [math.nan]}, syncable=False)
        items = []
        for line in self.chart.lines:
            sample = drawn(constant, LineGlyph(x="time", y="value", **_look(line)))
            self.plot.renderers = [*self.plot.renderers, sample]
            items.append(LegendItem(label=value(line.name), renderers=[sample]))
        legend = Legend()
        quiet_legend(legend, self.chart.longest_title, items)
        self.plot.add_layout(legend, "above")

    def _add_limit(self, lines: ColumnDataSource) -> None:
        """Draw the limit, and let the browser set the range of the axis, in bytes."""
        plot = self.plot
        limit = HSpan(y="limit", line_color=palette.COMPILATION, line_width=1.2)
        plot.renderers = [*plot.renderers, drawn(self._pool, limit)]
        binary = [2**power for power in range(10)]
        plot.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=binary, desired_num_ticks=3)
        plot.yaxis.formatter = CustomJSTickFormatter(code=_BYTES_TICKS)
        self.scale = Select(options=SCALES, value="data")
        args = {
            "pool": self._pool,
            "lines": lines,
            "columns": [line.column for line in self.chart.lines],
            "scale": self.scale,
            "range": plot.y_range,
            "nearly_full": NEARLY_FULL,
        }
        rescale = CustomJS(args=args, code=_SCALE)
        plot.js_on_change("inner_width", rescale)  # when a page is opened
        lines.js_on_change("streaming", rescale)
        lines.js_on_change("data", rescale)
        self._pool.js_on_change("data", rescale)
        self.scale.js_on_change("value", rescale)

    def draw(self, outbox: Outbox, record: RunRecord) -> None:
        """Update the title and, in a memory chart, the limit; the source updates the lines."""
        if self.chart.of_memory and not math.isnan(record.limit) and record.limit != self._limit:
            self._limit = record.limit
            outbox.replace(self._pool, lambda: {"limit": [self._limit]}, 1)
        if (title := self.chart.title(record)) != self._title:
            self._title = title
            outbox.change(self.plot.title, "text", title)


def _look(line: Line) -> dict[str, Any]:
    return {
        "line_color": line.color,
        "line_width": 1.6,
        "line_dash": dash_lengths(line.dashes),
    }
