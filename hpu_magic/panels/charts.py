"""The live charts: Bokeh figures on one time axis, built once and appended to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from bokeh.core.properties import value
from bokeh.layouts import column
from bokeh.models import (
    AdaptiveTicker,
    ColumnDataSource,
    CustomJSTickFormatter,
    DataRange1d,
    HoverTool,
    InlineStyleSheet,
    Range1d,
)
from bokeh.models.annotations import LabelSet, LegendItem
from bokeh.plotting import figure

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.patches import Event, Rows
from hpu_magic.panels.record import COLUMNS
from hpu_magic.panels.trace import Trace, Window
from hpu_magic.runtime.measure.not_finite import NotFinite

__all__ = ["Charts"]

_EVENTS_KEPT = 200
_LABEL_TOP = 92  # pixels above the bottom of the chart, below the legend
_MEMORY_TITLE = "device memory: in use, and peak (dashed)"
_BYTES_TICKS = """
const step = [[2**40, "TiB"], [2**30, "GiB"], [2**20, "MiB"], [2**10, "KiB"]]
  .find(([scale]) => Math.abs(tick) >= scale)
return step ? +(tick / step[0]).toPrecision(4) + " " + step[1] : tick + " B"
"""
# Titles, axes and legends in the colour of the page's theme; where the page has none, or Bokeh does
# not know of such variables, in that of the models.
_THEMED = "".join(
    f"--bk-{part}text-color: var(--jp-ui-font-color1, {palette.TEXT});"
    for part in ("", "major-label-", "label-")
)
# A legend is drawn as a part of the page, with the colour that it finds before it is there.
_THEMED_LEGEND = f".bk-label {{ color: var(--jp-ui-font-color1, {palette.TEXT}) !important; }}"
_TIME_TICKS = """
if (tick < 600) return tick + " s"
const minutes = Math.floor(tick / 60), hours = Math.floor(minutes / 60)
return hours ? hours + " h " + (minutes % 60) + " min" : minutes + " min"
"""


def _chart(kind: str, time_range: Any, title: str, values: DataRange1d) -> Any:
    plot: Any = figure(
        height=palette.HEIGHTS[kind],
        sizing_mode="stretch_width",
        x_range=time_range,
        y_range=values,
        toolbar_location=None,
        tools="",
        min_border_left=palette.LEFT,
        min_border_right=12,
        output_backend="canvas",
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
    )
    plot.title.text = title
    plot.title.text_color = palette.TEXT
    plot.title.text_font = palette.FONT
    plot.title.text_font_size = "11px"
    plot.title.text_font_style = "normal"
    plot.title.standoff = 4
    for axis in (plot.xaxis, plot.yaxis):
        axis.major_label_text_color = palette.TEXT
        axis.major_label_text_font = palette.FONT
        axis.major_label_text_font_size = "10px"
        axis.axis_line_color = None
        axis.minor_tick_line_color = None
        axis.major_tick_line_color = None
    plot.yaxis.ticker.desired_num_ticks = 4
    plot.grid.grid_line_color = palette.GRID
    plot.grid.grid_line_alpha = 0.25
    plot.xgrid.grid_line_color = None
    plot.xaxis.formatter = CustomJSTickFormatter(code=_TIME_TICKS)
    return plot


def _lengths(dashes: str) -> list[int]:
    return [int(length) for length in dashes.split()]


class Charts:
    """Loss, pace and memory of one fit, or memory alone.

    All methods are to be called from one thread. What is appended is seen after `flush`.

    Parameters
    ----------
    capacity
        Points kept in a line.
    kinds
        Which charts, from top to bottom: ``loss``, ``speed``, ``memory``.
    window
        Seconds of the time axis, which then follows the newest point; None
        shows all from 0.
    """

    def __init__(
        self,
        capacity: int = 1000,
        kinds: Sequence[str] = ("loss", "speed", "memory"),
        window: float | None = None,
    ) -> None:
        self._capacity = capacity
        self.kinds = tuple(kinds)
        self._follows = window is not None
        self._time: Any = Range1d(start=0, end=10)
        if window is not None:
            self._time = DataRange1d(follow="end", follow_interval=window, range_padding=0)
        self._lines = ColumnDataSource({name: [] for name in COLUMNS})
        self._validation = ColumnDataSource({"time": [], "loss": []})
        self._marks: dict[str, ColumnDataSource] = {
            kind: ColumnDataSource({"time": [], "text": []}) for kind in ("epoch", "compilation")
        }
        self._logged = [ColumnDataSource({"time": [], "value": []}) for _ in palette.CURVES]
        self._names: list[str] = []
        self._validated = False
        self._broken_texts: list[str] = []
        self._broken = ColumnDataSource({"time": [], "text": [], "height": []})
        self._limit: Any = None
        build = {"loss": self._loss, "speed": self._speed, "memory": self._memory}
        plots = [build[kind]() for kind in self.kinds]
        for plot in plots:
            self._add_marks(plot)
        for plot in plots[:-1]:
            plot.xaxis.visible = False
        plots[-1].height += 20
        themed = InlineStyleSheet(css=f":host {{{_THEMED}}}")
        self.layout = column(*plots, sizing_mode="stretch_width", spacing=0, stylesheets=[themed])
        # What the browser works out (ranges, sizes) would come back here at every row.
        for model in self.layout.references():
            model.syncable = False
        self._rows: dict[ColumnDataSource, Rows] = {}
        self._send: Callable[[list[Event]], None] | None = None

    def _line(self, plot: Any, name: str, colour: str, **style: Any) -> Any:
        return plot.line("time", name, source=self._lines, color=colour, line_width=1.6, **style)

    def _loss(self) -> Any:
        plot = _chart("loss", self._time, "loss", DataRange1d(range_padding=0.08))
        self._loss_title = plot.title
        train = self._line(plot, "train", palette.TRAIN, legend_label="training")
        points = {"source": self._validation, "color": palette.VALIDATION}
        plot.line("time", "loss", line_width=1.6, legend_label="validation", **points)
        seen = plot.scatter("time", "loss", size=5, legend_label="validation", **points)
        self._hover(plot, train, "training @train{0.0000} at @time{0.0} s")
        self._hover(plot, seen, "validation @loss{0.0000} at @time{0.0} s")
        self._legend(plot)
        self._add_broken(plot)
        return plot

    def _legend(self, plot: Any) -> None:
        """Set the legend, with places for logged values that come later."""
        self._items = []
        for source, (colour, dashes) in zip(self._logged, palette.CURVES, strict=True):
            line = plot.line(
                "time",
                "value",
                source=source,
                color=colour,
                line_width=1.6,
                line_dash=_lengths(dashes),
            )
            self._hover(plot, line, "@value at @time{0.0} s")
            self._items.append(LegendItem(label=value(""), renderers=[line], visible=False))
        legend = plot.legend[0]
        self._training_item, self._validation_item = legend.items
        legend.items = [*legend.items[:1], *self._items, *legend.items[1:]]
        legend.orientation = "horizontal"
        legend.location = "top_right"
        legend.background_fill_alpha = 0
        legend.border_line_color = None
        legend.label_text_color = palette.TEXT
        legend.label_text_font = palette.FONT
        legend.label_text_font_size = "11px"
        legend.padding = legend.margin = 0
        if "stylesheets" in legend.properties():
            legend.stylesheets = [InlineStyleSheet(css=_THEMED_LEGEND)]
        legend.glyph_width = 28  # so that dashes show

    def _add_broken(self, plot: Any) -> None:
        plot.vspan(
            "time", source=self._broken, color=palette.BROKEN, line_width=1.4, line_dash=[2, 3]
        )
        plot.add_layout(
            LabelSet(
                x="time",
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

    def _speed(self) -> Any:
        plot = _chart("speed", self._time, "steps per second", DataRange1d(start=0))
        line = self._line(plot, "speed", palette.SPEED)
        self._hover(plot, line, "@speed{0.0} steps/s at @time{0.0} s")
        return plot

    def _memory(self) -> Any:
        values = DataRange1d(start=0, range_padding=0.15)
        plot = _chart("memory", self._time, _MEMORY_TITLE, values)
        self._memory_title = plot.title
        area = plot.varea("time", 0, "in_use", source=self._lines, color=palette.MEMORY)
        area.glyph.fill_alpha = 0.18
        line = self._line(plot, "in_use", palette.MEMORY)
        peak = self._line(plot, "peak", palette.MEMORY, line_dash=[4, 3])
        # The card's limit is drawn, but must not squeeze the curve when it is far above it.
        values.renderers = [line, peak]
        self._limit = plot.hspan([math.nan], color=palette.COMPILATION, line_width=1.2)
        binary = [2**power for power in range(10)]
        plot.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=binary, desired_num_ticks=3)
        plot.yaxis.formatter = CustomJSTickFormatter(code=_BYTES_TICKS)
        self._hover(plot, line, "@in_use{0.0 ib} in use, peak @peak{0.0 ib} at @time{0.0} s")
        return plot

    @staticmethod
    def _hover(plot: Any, renderer: Any, tooltip: str) -> None:
        plot.add_tools(
            HoverTool(renderers=[renderer], tooltips=tooltip, mode="vline", visible=False)
        )

    def _add_marks(self, plot: Any) -> None:
        styles = {
            "epoch": {"color": palette.GRID, "line_alpha": 0.35, "line_width": 1},
            "compilation": {
                "color": palette.COMPILATION,
                "line_alpha": 0.6,
                "line_width": 1.2,
                "line_dash": _lengths(palette.COMPILATION_DASHES),
            },
        }
        for kind, style in styles.items():
            plot.vspan("time", source=self._marks[kind], level="underlay", **style)

    # Updates, from one thread

    def add(self, row: tuple[float, ...]) -> None:
        """Append one row of ``COLUMNS``."""
        self._append(self._lines, row)
        self._extend(row[0])

    def replace(self, trace: Trace | Window) -> None:
        """Draw all rows of a trace, after it was thinned."""
        self._rows_of(self._lines).replace(trace.data())

    def add_validation(self, time: float, loss: float) -> None:
        """Append one validation loss."""
        self._validated = True
        if not self._validation_item.visible:
            self._validation_item.visible = True
        self._append(self._validation, (time, loss))

    def add_logged(
        self, name: str, points: Sequence[tuple[float, float]], all_of_it: Trace | None = None
    ) -> None:
        """Append values that the model logs to their curve; draw `all_of_it` once thinned."""
        if name not in self._names:
            item = self._items[len(self._names)]
            self._names.append(name)
            item.label, item.visible = value(name), True
            self._training_item.visible = False
            self._validation_item.visible = self._validated
            self._loss_title.text = "logged values"
        source = self._logged[self._names.index(name)]
        if all_of_it is not None:
            self._rows_of(source).replace(all_of_it.data())
            return
        for point in points:
            self._append(source, point)

    def add_broken(self, time: float, broken: NotFinite) -> None:
        """Mark where a curve became NaN or infinite."""
        height = _LABEL_TOP - 13 * (len(self._broken_texts) % 5)
        self._broken_texts.append(text := f"{broken.curve} {broken.value}, step {broken.step}")
        self._append(self._broken, (time, text, float(height)))

    def add_mark(self, kind: str, time: float, text: str) -> None:
        """Draw a vertical line for an epoch or a compilation."""
        if kind in self._marks:
            self._append(self._marks[kind], (time, text))

    def connect(self, send: Callable[[list[Event]], None]) -> None:
        """Give the charts the way to the pages that draw them."""
        self._send = send

    def flush(self) -> None:
        """Send what was appended since the last time, as one message."""
        taken = (rows.take() for rows in self._rows.values())
        events = [event for event in taken if event is not None]
        if events and self._send is not None:
            self._send(events)

    def restore(self, setter: Any) -> None:
        """Put all that was sent into the models, for a page that opens; see `Rows.restore`."""
        for rows in self._rows.values():
            rows.restore(setter)

    def set_limit(self, limit: float) -> None:
        """Draw the size of the device's memory pool, in bytes."""
        if self._limit is not None:
            self._limit.glyph.y = limit
            self._memory_title.text = f"{_MEMORY_TITLE}, of {units.size(limit)}"

    def _append(self, source: ColumnDataSource, row: tuple[float | str, ...]) -> None:
        self._rows_of(source).append(row)

    def _rows_of(self, source: ColumnDataSource) -> Rows:
        if source not in self._rows:
            long = source in (self._lines, *self._logged)
            self._rows[source] = Rows(source, self._capacity if long else _EVENTS_KEPT)
        return self._rows[source]

    def _extend(self, now: float) -> None:
        """Lengthen the time axis in steps of a quarter, not at every point."""
        if not self._follows and now > self._time.end:
            self._time.end = now * 1.25
