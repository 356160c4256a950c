"""The chart of one metric: its curves in training and validation, its best value, its NaN."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, CustomJS, CustomJSTransform, DataRange1d
from bokeh.models.annotations import LabelSet, Legend, LegendItem
from bokeh.models.glyphs import Line, Scatter, VSpan
from bokeh.models.widgets import Select
from bokeh.transform import transform

from hpu_magic.panels import palette
from hpu_magic.panels.charts.axis import SharedAxis
from hpu_magic.panels.charts.figure import blank, dash_lengths, drawn, hover, quiet_legend
from hpu_magic.panels.charts.outbox import Outbox
from hpu_magic.panels.metric_chart import LONGEST_BEST, Style, best_of, styles, title
from hpu_magic.panels.record import Change, RunRecord
from hpu_magic.runtime.measure.curves import Curve
from hpu_magic.runtime.measure.not_finite import NotFinite

_AMOUNTS: list[Any] = [("0", "none"), *((one, one) for one in ("0.5", "0.8", "0.9", "0.97"))]
_BROKEN_KEPT = 40
_LABEL_LOWEST = 6  # pixels above the bottom of the chart
# TensorBoard's: an exponential mean, divided by the weight that it has gathered.
_SMOOTH = """
const weight = Number(amount.value)
if (!weight) return xs
let mean = 0, gathered = 0
return Float64Array.from(xs, x => {
  if (!isFinite(x)) return x
  mean = weight * mean + (1 - weight) * x
  gathered = weight * gathered + 1 - weight
  return mean / gathered
})
"""
_RAW = "return Number(amount.value) ? xs : new Float64Array(xs.length).fill(NaN)"
_AGAIN = "for (const each of [smooth, raw]) each.change.emit()"


class Smoothing:
    """The reader's choice of how much steps are smoothed, which the browser does."""

    def __init__(self) -> None:
        self.amount = Select(options=_AMOUNTS, value="0")
        self.smooth = CustomJSTransform(args={"amount": self.amount}, v_func=_SMOOTH)
        self.raw = CustomJSTransform(args={"amount": self.amount}, v_func=_RAW)
        again = CustomJS(args={"smooth": self.smooth, "raw": self.raw}, code=_AGAIN)
        self.amount.js_on_change("value", again)


class MetricChart:
    """One chart, whose curves appear as they are logged.

    Parameters
    ----------
    metric
        Its name, None for the first chart before anything was logged.
    axis, smoothing
        Shared by all charts.
    capacity
        Points kept in a curve.
    """

    def __init__(
        self,
        metric: str | None,
        axis: SharedAxis,
        smoothing: Smoothing,
        capacity: int,
        kind: str = "metric",
    ) -> None:
        self.metric = metric
        self._axis, self._smoothing, self._capacity = axis, smoothing, capacity
        self._sources: dict[Curve, ColumnDataSource] = {}
        self._lines: list[Any] = []
        self._begun: set[Curve] = set()  # their sources have all that is new
        self._best_row: tuple[float, ...] = ()
        self._broken_count = 0
        self._broken = ColumnDataSource({"time": [], "step": [], "text": [], "height": []})
        self._best = ColumnDataSource({"time": [], "step": [], "value": []})
        self._title = metric or "loss"
        height = palette.HEIGHTS[kind]
        values = DataRange1d(range_padding=0.2)
        self.plot = blank(height, self._title, axis.range, values, axis.ticks())
        if kind == "loss":
            axis.name_epochs(self.plot)
        # The last that is added lies above the others.
        self._legend = Legend()
        quiet_legend(self._legend, self._title, [])
        self.plot.add_layout(self._legend, "above")
        self._add_broken_marks()
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
        """Draw what is new, with all of a curve that was not drawn so far."""
        assert self.metric is not None
        curves = list(self._sources)
        for curve, source in self._sources.items():
            change = changes.get(curve)
            if curve in self._begun:
                continue
            if change is not None and change.thinned:
                outbox.replace(source, record.curves[curve].data(), self._capacity)
            elif change is not None:
                outbox.append(source, change.rows, self._capacity)
        self._begun.clear()
        self._draw_best(outbox, record, curves)
        words = title(self.metric, record.curves, curves) if curves else self.metric
        if words != self._title:
            self._title = words
            outbox.change(self.plot.title, "text", words)

    def _curves(self, record: RunRecord) -> list[Curve]:
        if self.metric is None:
            return []
        return [one for one in record.metrics.of(self.metric) if one in record.curves]

    def lacks(self, record: RunRecord) -> bool:
        """Tell whether there are other curves by now."""
        return self._curves(record) != list(self._sources)

    def begin(self, outbox: Outbox, record: RunRecord) -> None:
        """Draw curves anew with all they have, as each may change how the others look."""
        kept = [one for one in self.plot.renderers if one not in self._lines]
        curves, traces = self._curves(record), record.curves
        for old in self._sources.values():
            outbox.forget(old)
        self._sources.clear()
        self._begun.update(curves)
        self._lines, items, hovers = [], [], []
        for style in styles(curves):
            source = ColumnDataSource(traces[style.curve].data(), syncable=False)
            self._sources[style.curve] = source
            lines, samples = self._glyphs(style, source), _samples(style)
            self._lines += [*lines, *samples]
            items.append(LegendItem(label=value(style.words), renderers=samples))
            words = f"{style.curve.name} @value{{0.0000}} at step @step, @time{{0.0}} s"
            hovers.append(hover(lines[0], words))
        self.plot.renderers = [*kept, *self._lines]
        self.plot.tools = hovers
        longest = f"{self.metric}{LONGEST_BEST}"
        quiet_legend(self._legend, longest, items if len(items) > 1 else [])

    def _glyphs(self, style: Style, source: ColumnDataSource) -> list[Any]:
        """Return what draws a curve: line and dots, or the raw line and the smooth one."""
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
            columns = dict(zip(self._best.column_names, ([one] for one in row), strict=True))
            outbox.replace(self._best, columns, 1)

    def add_broken(self, outbox: Outbox, time: float, broken: NotFinite) -> None:
        """Mark where a curve became NaN or infinite."""
        height = float(_LABEL_LOWEST + 13 * (self._broken_count % 4))
        self._broken_count += 1
        text = f"{broken.curve} {broken.value}, step {broken.step}"
        row = (time, float(broken.step), text, height)
        outbox.append(self._broken, [row], _BROKEN_KEPT)

    def _add_broken_marks(self) -> None:
        place = self._axis.of(self._broken)
        mark = VSpan(x=place, line_color=palette.BROKEN, line_width=1.4, line_dash=[2, 3])
        self._add(drawn(self._broken, mark))
        self.plot.add_layout(
            LabelSet(
                x=place,
                y="height",
                y_units="screen",
                text="text",
                source=self._broken,
                x_offset=5,
                text_color=palette.BROKEN,
                text_font=value(palette.FONT),
                text_font_size="11px",
            )
        )


def _look(style: Style) -> dict[str, Any]:
    return {
        "line_color": style.colour,
        "line_width": 1.6,
        "line_dash": dash_lengths(style.dashes),
    }


def _dots(style: Style, source: ColumnDataSource, place: Any) -> Any:
    dots = Scatter(x=place, y="value", size=5, fill_color=style.colour, line_color=style.colour)
    return drawn(source, dots)


def _samples(style: Style) -> list[Any]:
    """Return what a legend shows of a curve.

    It is drawn over data that never changes, and lies nowhere: a page clears the legend whenever
    anything changes that the legend refers to, and paints it again only when it paints everything.
    """
    source = ColumnDataSource({"time": [nan], "value": [nan]}, syncable=False)
    line = drawn(source, Line(x="time", y="value", **_look(style)))
    return [line, _dots(style, source, "time")] if style.dots else [line]
