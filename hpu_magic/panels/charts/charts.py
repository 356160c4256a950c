"""All charts of a run, stacked above a shared time axis."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, InlineStyleSheet
from bokeh.models.glyphs import VSpan

from hpu_magic.panels import palette
from hpu_magic.panels.charts.axis import SharedAxis
from hpu_magic.panels.charts.controls import AddMetric, controls, titled
from hpu_magic.panels.charts.figure import THEMED, dash_lengths, drawn
from hpu_magic.panels.charts.lines import LinePlot
from hpu_magic.panels.charts.metric import MetricChart
from hpu_magic.panels.charts.outbox import Columns, Event, Outbox, columns_of
from hpu_magic.panels.charts.smoothing import Smoothing
from hpu_magic.panels.line_charts import KINDS, LINE_CHARTS, METRICS
from hpu_magic.panels.record import COLUMNS, EPOCH_COLUMNS, News, RunRecord

_MARKS_KEPT = 200


class Charts:
    """Charts of the metrics, pace and memory of a fit, or of memory alone.

    All methods must be called from the same thread. Changes become visible after `flush`.

    ``capacity`` is the maximum number of points in a line, ``kinds`` contains names from
    `line_charts.KINDS`, and ``window`` is passed to `SharedAxis`. ``on_add`` is called with the
    name of a metric if the user requests a chart of it.
    """

    def __init__(
        self,
        capacity: int = 1000,
        kinds: Sequence[str] = KINDS,
        window: float | None = None,
        on_add: Callable[[str], None] = lambda metric: None,
    ) -> None:
        self._capacity = capacity
        self._lines = ColumnDataSource({name: [] for name in COLUMNS})
        self._epochs = ColumnDataSource({name: [] for name in EPOCH_COLUMNS})
        self._marks = ColumnDataSource({"time": [], "step": [], "text": []})
        self._mark_rows: deque[tuple[float, float, str]] = deque(maxlen=_MARKS_KEPT)
        self._axis = SharedAxis(self._lines, self._epochs, window)
        self._smoothing = Smoothing()
        self._outbox = Outbox()
        self._not_finite_drawn = 0
        self._metrics: list[MetricChart] = []
        self._plots = [
            LinePlot(chart, self._axis, self._lines) for chart in LINE_CHARTS if chart.name in kinds
        ]
        below = [each.plot for each in self._plots]
        for plot in below:
            self._add_marks(plot)
            plot.xaxis.visible = plot is below[-1]
        self._on_add = on_add
        self._add = AddMetric() if METRICS in kinds else None
        chosen = []
        if self._add is not None:
            self._metrics.append(self._metric_chart(None, first=True))
            chosen += [
                titled(self._axis.choice, "Axis", 115),
                titled(self._smoothing.amount, "Smoothing", 150),
            ]
        chosen += [titled(each.scale, "Memory", 165) for each in self._plots if each.scale]
        if self._add is not None:
            chosen.append(titled(self._add.select, "Add metric", 200))
        self._controls = controls(*chosen)
        self._below = below
        themed = InlineStyleSheet(css=f":host {{{THEMED} container-type: inline-size; }}")
        self.layout = column(
            self._controls,
            *(each.plot for each in self._metrics),
            *below,
            sizing_mode="stretch_width",
            spacing=0,
            stylesheets=[themed],
        )
        self._axis.follow(self.layout, below[-1])
        self._silence(self.layout)

    def draw(self, record: RunRecord, news: News) -> None:
        """Draw a record's new rows."""
        self._outbox.follow(self._lines, record.lines.data, self._capacity)
        self._outbox.follow(self._epochs, record.epochs.data, _MARKS_KEPT)
        self._outbox.follow(self._marks, self._mark_columns, _MARKS_KEPT)
        if news.lines.thinned:
            self._outbox.replace(self._lines, record.lines.data, self._capacity)
        elif news.lines:
            self._outbox.append(self._lines, news.lines.rows)
        if news.epochs:
            self._outbox.replace(self._epochs, record.epochs.data, _MARKS_KEPT)
        marks = [(mark.time, record.step_at(mark.time), mark.text) for mark in news.marks]
        self._mark_rows += marks
        self._outbox.append(self._marks, marks)
        self._draw_metrics(record, news)
        for plot in self._plots:
            plot.draw(self._outbox, record)

    def flush(self) -> None:
        """Send everything drawn since the last call as one message."""
        self._outbox.flush()

    def restore(self, setter: Any) -> None:
        """Update the models for a page that is being opened; see `Outbox.restore`."""
        self._outbox.restore(setter)

    def choose(self, metric: str) -> None:
        """Pass the user's choice in `AddMetric` to ``on_add``."""
        self._on_add(metric)

    def connect(self, send: Callable[[list[Event]], None]) -> None:
        """Set the function that sends messages to the pages."""
        self._outbox.send = send

    def _mark_columns(self) -> Columns:
        return columns_of(self._marks, self._mark_rows)

    def _draw_metrics(self, record: RunRecord, news: News) -> None:
        if self._add is None:
            return
        wanted = record.metrics.drawn
        if wanted and [each.metric for each in self._metrics] != wanted:
            self._arrange(wanted, record)
        else:
            self._begin(record)
        for each in self._metrics:
            if each.metric is not None:
                each.draw(self._outbox, record, news.curves)
        for noted in record.not_finite[self._not_finite_drawn :]:
            self._not_finite_drawn += 1
            own = [each for each in self._metrics if each.metric == noted.metric]
            chart = (own or self._metrics)[0]
            chart.add_not_finite(self._outbox, noted.moment - record.began, noted)
        self._add.offer(record.metrics.addable, len(wanted))

    def _begin(self, record: RunRecord) -> None:
        for each in self._metrics:
            if each.lacks(record):
                each.begin(self._outbox, record)

    def _arrange(self, wanted: list[str], record: RunRecord) -> None:
        """Create a chart for each metric; the first metric uses the chart that is still empty."""
        first = self._metrics[0]
        if first.metric is None:
            first.metric = wanted[0]
        existing = {each.metric: each for each in self._metrics}
        new = [name for name in wanted if name not in existing]
        existing |= {name: self._metric_chart(name) for name in new}
        self._metrics = [existing[name] for name in wanted]
        # Draw before adding the new charts, because the document visits all models after each
        # change.
        self._begin(record)
        plots = [each.plot for each in self._metrics]
        self.layout.children = [self._controls, *plots, *self._below]

    def _metric_chart(self, metric: str | None, *, first: bool = False) -> MetricChart:
        chart = MetricChart(metric, self._axis, self._smoothing, self._capacity, first=first)
        chart.plot.below[0].visible = False
        self._add_marks(chart.plot)
        return chart

    def _silence(self, model: Any) -> None:
        """Keep the browser from sending back ranges and sizes that it computes for each row."""
        for each in model.references():
            each.syncable = False

    def _add_marks(self, plot: Any) -> None:
        epoch = VSpan(
            x=self._axis.of(self._epochs), line_color=palette.GRID, line_alpha=0.35, line_width=1
        )
        compiled = VSpan(
            x=self._axis.of(self._marks),
            line_color=palette.COMPILATION,
            line_alpha=0.6,
            line_width=1.2,
            line_dash=dash_lengths(palette.COMPILATION_DASHES),
        )
        below = [
            drawn(self._epochs, epoch, "underlay"),
            drawn(self._marks, compiled, "underlay"),
        ]
        plot.renderers = [*below, *plot.renderers]
