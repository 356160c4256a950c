"""The live chart of one metric: training and validation curves, best value and NaN marks."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import nan
from typing import Any

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, DataRange1d
from bokeh.models.annotations import LabelSet, Legend, LegendItem
from bokeh.models.glyphs import Line, Scatter, VSpan
from bokeh.transform import transform

from hpu_magic.panels import palette
from hpu_magic.panels.charts.axis import SharedAxis
from hpu_magic.panels.charts.figure import blank, dash_lengths, drawn, hover, quiet_legend
from hpu_magic.panels.charts.outbox import Outbox, columns_of
from hpu_magic.panels.charts.smoothing import Smoothing
from hpu_magic.panels.metric_chart import (
    FIRST_HEIGHT,
    HEIGHT,
    LONGEST_BEST,
    Style,
    best_of,
    styles,
    title,
)
from hpu_magic.panels.record import Change, RunRecord
from hpu_magic.runtime.training.curves import Curve
from hpu_magic.runtime.training.not_finite import NotFinite

_NOT_FINITE_KEPT = 40
_LABEL_LOWEST = 6  # lowest position of a label, in pixels above the bottom of the chart


class MetricChart:
    """A chart whose curves appear when they are first logged.

    For the first chart, ``metric`` is None until something is logged. ``capacity`` is the maximum
    number of points in a curve. The first chart is taller and shows the epoch numbers.
    """

    def __init__(
        self,
        metric: str | None,
        axis: SharedAxis,
        smoothing: Smoothing,
        capacity: int,
        *,
        first: bool = False,
    ) -> None:
        self.metric = metric
        self._axis, self._smoothing, self._capacity = axis, smoothing, capacity
        self._sources: dict[Curve, ColumnDataSource] = {}
        self._lines: list[Any] = []
        self._begun: set[Curve] = set()  # curves whose sources already contain the new rows
        self._best_row: tuple[float, ...] = ()
        self._not_finite_count = 0
        self._not_finite = ColumnDataSource({"time": [], "step": [], "text": [], "height": []})
        self._not_finite_rows: deque[tuple[float | str, ...]] = deque(maxlen=_NOT_FINITE_KEPT)
        self._best = ColumnDataSource({"time": [], "step": [], "value": []})
        self._title = metric or "loss"
        height = FIRST_HEIGHT if first else HEIGHT
        values = DataRange1d(range_padding=0.2)
        self.plot = blank(height, self._title, axis.range, values, axis.ticks())
        if first:
            axis.name_epochs(self.plot)
        # Set the tools only once: if they change, Bokeh moves the legend without a new layout.
        self._hover = hover([], "$name @value{0.0000} at step @step, @time{0.0} s")
        self.plot.tools = [self._hover]
        # Items that are added to the layout last are drawn on top.
        self._legend = Legend()
        quiet_legend(self._legend, self._title, [])
        self.plot.add_layout(self._legend, "above")
        self._add_not_finite_marks()
        ring = Scatter(
            x=axis.of(self._best),
            y="value",
            size=11,
            fill_alpha=0,
            line_color=palette.BEST,
            line_width=1.6,
        )
        self._add(drawn(self._best, ring))

    def _add(self, *renderers: Any) -> None:
        self.plot.renderers = [*self.plot.renderers, *renderers]

    def draw(self, outbox: Outbox, record: RunRecord, changes: Mapping[Curve, Change]) -> None:
        """Draw the new points of all curves."""
        assert self.metric is not None
        curves = list(self._sources)
        for curve, source in self._sources.items():
            change = changes.get(curve)
            if curve in self._begun:
                continue
            if change is not None and change.thinned:
                outbox.replace(source, record.curves[curve].data, self._capacity)
            elif change is not None:
                outbox.append(source, change.rows)
        self._begun.clear()
        self._draw_best(outbox, record, curves)
        text = title(self.metric, record.curves, curves) if curves else self.metric
        if text != self._title:
            self._title = text
            outbox.change(self.plot.title, "text", text)

    def _curves(self, record: RunRecord) -> list[Curve]:
        if self.metric is None:
            return []
        return [curve for curve in record.metrics.of(self.metric) if curve in record.curves]

    def lacks(self, record: RunRecord) -> bool:
        """Return whether the record's curves differ from those in the chart."""
        return self._curves(record) != list(self._sources)

    def begin(self, outbox: Outbox, record: RunRecord) -> None:
        """Redraw all curves, because a new curve may change the style of the others."""
        kept = [renderer for renderer in self.plot.renderers if renderer not in self._lines]
        curves, traces = self._curves(record), record.curves
        for old in self._sources.values():
            outbox.forget(old)
        self._sources.clear()
        self._begun.update(curves)
        self._lines, items, named = [], [], []
        for style in styles(curves):
            trace = traces[style.curve]
            source = ColumnDataSource(trace.data(), syncable=False)
            outbox.follow(source, trace.data, self._capacity)
            self._sources[style.curve] = source
            lines, samples = self._glyphs(style, source), _samples(style)
            self._lines += [*lines, *samples]
            items.append(LegendItem(label=value(style.label), renderers=samples))
            lines[0].name = style.curve.name
            named.append(lines[0])
        self.plot.renderers = [*kept, *self._lines]
        self._hover.renderers = named
        longest = f"{self.metric}{LONGEST_BEST}"
        quiet_legend(self._legend, longest, items if len(items) > 1 else [])

    def _glyphs(self, style: Style, source: ColumnDataSource) -> list[Any]:
        """Return a curve's renderers: a line and dots, or the raw and the smoothed line."""
        place = self._axis.of(source)
        look = _look(style)
        if style.dots:
            return [drawn(source, Line(x=place, y="value", **look)), _dots(style, source, place)]
        raw, smooth = self._smoothing.raw, self._smoothing.smooth
        faint = Line(x=place, y=transform("value", raw), line_alpha=0.3, **look)
        return [
            drawn(source, faint),
            drawn(source, Line(x=place, y=transform("value", smooth), **look)),
        ]

    def _draw_best(self, outbox: Outbox, record: RunRecord, curves: list[Curve]) -> None:
        best = best_of(record.curves, curves)
        if best is None:
            return
        row = (best.time, float(best.step), best.value)
        if self._best_row != row:
            self._best_row = row
            outbox.replace(self._best, lambda: columns_of(self._best, [self._best_row]), 1)

    def add_not_finite(self, outbox: Outbox, time: float, noted: NotFinite) -> None:
        """Mark the time at which a curve became NaN or infinite."""
        height = float(_LABEL_LOWEST + 13 * (self._not_finite_count % 4))
        self._not_finite_count += 1
        text = f"{noted.curve} {noted.value}, step {noted.step}"
        row = (time, float(noted.step), text, height)
        source, rows = self._not_finite, self._not_finite_rows
        outbox.follow(source, lambda: columns_of(source, rows), _NOT_FINITE_KEPT)
        rows.append(row)
        outbox.append(source, [row])

    def _add_not_finite_marks(self) -> None:
        place = self._axis.of(self._not_finite)
        mark = VSpan(x=place, line_color=palette.NOT_FINITE, line_width=1.4, line_dash=[2, 3])
        self._add(drawn(self._not_finite, mark))
        self.plot.add_layout(
            LabelSet(
                x=place,
                y="height",
                y_units="screen",
                text="text",
                source=self._not_finite,
                x_offset=5,
                text_color=palette.NOT_FINITE,
                text_font=value(palette.FONT),
                text_font_size="11px",
            )
        )


def _look(style: Style) -> dict[str, Any]:
    return {
        "line_color": style.color,
        "line_width": 1.6,
        "line_dash": dash_lengths(style.dashes),
    }


def _dots(style: Style, source: ColumnDataSource, place: Any) -> Any:
    dots = Scatter(x=place, y="value", size=5, fill_color=style.color, line_color=style.color)
    return drawn(source, dots)


def _samples(style: Style) -> list[Any]:
    """Return the renderers of a curve's legend entry.

    The renderers use constant data that is not part of the chart: a page clears the legend whenever
    its data changes, and does not redraw it until everything else is redrawn.
    """
    source = ColumnDataSource({"time": [nan], "value": [nan]}, syncable=False)
    line = drawn(source, Line(x="time", y="value", **_look(style)))
    return [line, _dots(style, source, "time")] if style.dots else [line]
