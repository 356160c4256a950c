"""The axis shared by all charts: time, step or epoch, computed in the browser.

Each row of data contains its time and step. The epoch of a step is interpolated between the starts
of epochs. In the newest epoch, the interpolation uses the epoch's expected length or, if that is
unknown, the newest step.
"""

from __future__ import annotations

from typing import Any

from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    CustomJSTransform,
    DataRange1d,
    FixedTicker,
    LinearAxis,
    Range1d,
)
from bokeh.models.widgets import Select
from bokeh.transform import transform

from hpu_magic.panels.charts.figure import quiet
from hpu_magic.panels.metric_chart import LABEL_ROOM, NUMBER_ROOM

AXES: list[Any] = [("time", "by time"), ("step", "by step"), ("epoch", "by epoch")]

_NEWEST = """
const newest = column => {
  for (let at = column.length - 1; at >= 0; at--) if (isFinite(column[at])) return column[at]
  return 0
}
"""
_EPOCH_OF = (
    _NEWEST
    + """
const epoch_of = at => {
  const {step, number, length} = epochs.data
  let own = step.length - 1
  while (own > 0 && step[own] > at) own--
  if (own < 0) return NaN
  const steps = own + 1 < step.length
    ? (step[own + 1] - step[own]) / (number[own + 1] - number[own])
    : isFinite(length[own]) ? length[own] : newest(lines.data.step) - step[own]
  return number[own] - 1 + (steps > 0 ? (at - step[own]) / steps : 0)
}
"""
)
_PLACES = (
    _EPOCH_OF
    + """
const places = source => choice.value === "time" ? source.data.time
  : choice.value === "step" ? source.data.step
  : Float64Array.from(source.data.step, epoch_of)
"""
)
_TRANSFORM = f"{_PLACES}\nreturn Float64Array.from(places(source))"
# Extend the axis by a quarter at a time, not for every new point.
_EXTEND = (
    _PLACES
    + f"""
const last = choice.value === "time" ? newest(lines.data.time)
  : choice.value === "step" ? newest(lines.data.step)
  : epoch_of(newest(lines.data.step)) || 0
const least = choice.value === "epoch" ? 1 : 10
const chosen = choice.tags[0] !== choice.value
if (chosen || last > range.end) {{
  choice.tags = [choice.value]
  range.end = Math.max(least, last <= least ? last : last * 1.25)
}}
const starts = places(epochs), ticks = []
const pixel = range.end / Math.max(plot.inner_width, 100)
below.ticker.desired_num_ticks = Math.max(2, Math.min(7, Math.floor(range.end / pixel / 80)))
let free = 0
for (let at = 0; at < starts.length; at++) {{
  if (at === 0 || starts[at] < free || starts[at] > range.end) continue
  free = starts[at] + (ticks.length ? {NUMBER_ROOM} : {LABEL_ROOM}) * pixel
  ticks.push(starts[at])
}}
ticker.ticks = ticks
"""
)
_EPOCH_NAMES = (
    _PLACES
    + """
const ended = epochs.data.number[places(epochs).indexOf(tick)] - 1
return isNaN(ended) ? "" : index === 0 ? "epoch " + ended : "" + ended
"""
)
_TIME = """
const minutes = Math.floor(tick / 60), hours = Math.floor(minutes / 60)
const time = tick < 600 ? tick + " s"
  : hours ? hours + " h " + (minutes % 60) + " min" : minutes + " min"
"""
_TICKS = (
    _TIME
    + """
if (choice.value === "time") return time
return tick === 0 ? "0 " + choice.value + "s" : tick.toLocaleString("en")
"""
)
_PLACE_AGAIN = """
for (const plot of charts.children) {
  for (const renderer of plot.renderers ?? []) renderer.data_source.change.emit()
}
"""
# The length of the newest epoch may be unknown until the next one begins.
_EPOCH_MOVED = f"""
const known = isFinite(epochs.data.length[epochs.data.length.length - 1])
if (choice.value === "epoch" && (cb_obj === epochs || !known)) {{{_PLACE_AGAIN}}}
"""


class SharedAxis:
    """The axis range shared by all charts, and the positions of rows along it.

    ``lines`` and ``epochs`` are data sources. ``window`` is the length, in seconds, of an axis that
    follows the newest point. If it is None, the axis starts at 0 and shows all rows, and the user
    can select time, step or epoch.
    """

    def __init__(
        self, lines: ColumnDataSource, epochs: ColumnDataSource, window: float | None
    ) -> None:
        self.choice = Select(options=AXES, value="time", tags=["time"])
        self.chosen = window is None
        self._lines, self._epochs = lines, epochs
        self._args = {"choice": self.choice, "lines": lines, "epochs": epochs}
        if window is None:
            self.range: Any = Range1d(start=0, end=10)
        else:
            self.range = DataRange1d(follow="end", follow_interval=window, range_padding=0)
        self._ticker = FixedTicker(ticks=[])
        self._transforms: dict[ColumnDataSource, CustomJSTransform] = {}

    def ticks(self) -> CustomJSTickFormatter:
        """Return the formatter for the tick labels below the charts."""
        if self.chosen:
            return CustomJSTickFormatter(code=_TICKS, args={"choice": self.choice})
        return CustomJSTickFormatter(code=f"{_TIME}return time")

    def of(self, source: ColumnDataSource) -> Any:
        """Return the positions of a source's rows as a Bokeh field."""
        if not self.chosen:
            return "time"
        if source not in self._transforms:
            args = {**self._args, "source": source}
            self._transforms[source] = CustomJSTransform(args=args, v_func=_TRANSFORM)
        return transform("time", self._transforms[source])

    def name_epochs(self, plot: Any) -> None:
        """Add epoch numbers above a chart, at the end of each epoch."""
        names = CustomJSTickFormatter(code=_EPOCH_NAMES, args=self._args)
        above: Any = LinearAxis()
        above.ticker, above.formatter = self._ticker, names
        quiet(above)
        above.major_label_standoff = 1
        plot.add_layout(above, "above")

    def follow(self, charts: Any, lowest: Any) -> None:
        """Let the browser extend the axis as rows arrive, and redraw if the user changes it."""
        if not self.chosen:
            return
        args = {**self._args, "range": self.range, "ticker": self._ticker}
        args |= {"plot": lowest, "below": lowest.xaxis[-1]}
        extend = CustomJS(args=args, code=_EXTEND)
        lowest.js_on_change("inner_width", extend)
        moved = CustomJS(args={**self._args, "charts": charts}, code=_EPOCH_MOVED)
        for source in (self._lines, self._epochs):
            source.js_on_change("streaming", extend, moved)
            source.js_on_change("data", extend, moved)
        again = CustomJS(args={"charts": charts}, code=_PLACE_AGAIN)
        self.choice.js_on_change("value", extend, again)
