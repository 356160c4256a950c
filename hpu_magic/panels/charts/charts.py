"""All charts of a run, one below the other over one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, InlineStyleSheet
from bokeh.models.glyphs import VSpan

from hpu_magic.panels import palette
from hpu_magic.panels.charts.axis import SharedAxis
from hpu_magic.panels.charts.controls import AddMetric, controls, titled
from hpu_magic.panels.charts.device import MemoryChart, speed_chart
from hpu_magic.panels.charts.figure import THEMED, dash_lengths, drawn
from hpu_magic.panels.charts.metric import MetricChart, Smoothing
from hpu_magic.panels.charts.outbox import Outbox
from hpu_magic.panels.patches import Event
from hpu_magic.panels.record import COLUMNS, EPOCH_COLUMNS, News, RunRecord

_MARKS_KEPT = 200


class Charts:
    """Metrics, pace and memory of one fit, or memory alone.

    All methods are to be called from one thread. What is drawn is seen after `flush`.

    Parameters
    ----------
    capacity
        Points kept in a line.
    kinds
        Which charts, from top to bottom: ``loss``, which stands for all metrics, ``speed``,
        ``memory``.
    window
        Seconds of the time axis, which then follows the newest point; None
        shows all from 0.
    on_add
        Called with the name of a metric that the reader wants to see too.
    """

    def __init__(
        self,
        capacity: int = 1000,
        kinds: Sequence[str] = ("loss", "speed", "memory"),
        window: float | None = None,
        on_add: Callable[[str], None] = lambda metric: None,
    ) -> None:
        self._capacity = capacity
        self._lines = ColumnDataSource({name: [] for name in COLUMNS})
        self._epochs = ColumnDataSource({name: [] for name in EPOCH_COLUMNS})
        self._marks = ColumnDataSource({"time": [], "step": [], "text": []})
        self._axis = SharedAxis(self._lines, self._epochs, window)
        self._smoothing = Smoothing()
        self._outbox = Outbox()
        self._broken_drawn = 0
        self._metrics: list[MetricChart] = []
        self._memory = MemoryChart(self._axis, self._lines) if "memory" in kinds else None
        below = [speed_chart(self._axis, self._lines)] if "speed" in kinds else []
        below += [] if self._memory is None else [self._memory.plot]
        for plot in below:
            self._add_marks(plot)
            plot.xaxis.visible = plot is below[-1]
        self._on_add = on_add
        self._add = AddMetric() if "loss" in kinds else None
        chosen = []
        if self._add is not None:
            self._metrics.append(self._metric_chart(None, "loss"))
            chosen += [
                titled(self._axis.choice, "Axis", 115),
                titled(self._smoothing.amount, "Smoothing", 150),
            ]
        if self._memory is not None:
            chosen.append(titled(self._memory.scale, "Memory", 165))
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
        """Draw what is new in a record."""
        if news.lines.thinned:
            self._outbox.replace(self._lines, record.lines.data(), self._capacity)
        elif news.lines:
            self._outbox.append(self._lines, news.lines.rows, self._capacity)
        if news.epochs:
            self._outbox.replace(self._epochs, record.epochs.data(), _MARKS_KEPT)
        marks = [(one.time, record.step_at(one.time), one.text) for one in news.marks]
        self._outbox.append(self._marks, marks, _MARKS_KEPT)
        self._draw_metrics(record, news)
        if self._memory is not None:
            self._memory.describe(self._outbox, record.peak, record.limit)

    def flush(self) -> None:
        """Send what was drawn since the last time, as one message."""
        self._outbox.flush()

    def restore(self, setter: Any) -> None:
        """Put all that was sent into the models, for a page that opens; see `Outbox.restore`."""
        self._outbox.restore(setter)

    def choose(self, metric: str) -> None:
        """Take what the reader chose in a page from `AddMetric`."""
        self._on_add(metric)

    def connect(self, send: Callable[[list[Event]], None]) -> None:
        """Give the charts the way to the pages that draw them."""
        self._outbox.send = send

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
        for broken in record.not_finite[self._broken_drawn :]:
            self._broken_drawn += 1
            own = [each for each in self._metrics if each.metric == broken.metric]
            chart = (own or self._metrics)[0]
            chart.add_broken(self._outbox, broken.moment - record.began, broken)
        self._add.offer(record.metrics.addable, len(wanted))

    def _begin(self, record: RunRecord) -> None:
        for each in self._metrics:
            if each.lacks(record):
                each.begin(self._outbox, record)

    def _arrange(self, wanted: list[str], record: RunRecord) -> None:
        """Give each metric a chart; the first, which stands there empty at first, the first one."""
        first = self._metrics[0]
        if first.metric is None:
            first.metric = wanted[0]
        there = {each.metric: each for each in self._metrics}
        new = [name for name in wanted if name not in there]
        there |= {name: self._metric_chart(name, "metric") for name in new}
        self._metrics = [there[name] for name in wanted]
        # Before the document knows of new charts: it looks through all it has at each change.
        self._begin(record)
        plots = [each.plot for each in self._metrics]
        self.layout.children = [self._controls, *plots, *self._below]

    def _metric_chart(self, metric: str | None, kind: str) -> MetricChart:
        chart = MetricChart(metric, self._axis, self._smoothing, self._capacity, kind)
        chart.plot.below[0].visible = False
        self._add_marks(chart.plot)
        return chart

    def _silence(self, model: Any) -> None:
        """Keep what the browser works out (ranges, sizes) from coming back here at every row."""
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
