"""The static picture of a run that stays in the notebook: plain SVG without script or fonts.

It contains the charts of the live panel in the same colors and proportions. It needs no kernel
and is legible on light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.line_charts import KINDS, LINE_CHARTS, METRICS, LineChart, memory_ticks
from hpu_magic.panels.metric_chart import (
    FIRST_HEIGHT,
    HEIGHT,
    Style,
    best_of,
    epoch_labels,
    sentence,
    styles,
    title,
)
from hpu_magic.panels.picture_parts import Frame, Point, dot, legend, line, thinned
from hpu_magic.panels.record import RunRecord
from hpu_magic.runtime.present import drawing

_TITLE, _BASELINE = 18, 11
_GAP = 10
_FOOT = 20


def draw(record: RunRecord, kinds: Sequence[str] = KINDS, name: str = "") -> str:
    """Return the run as an SVG image of at most a few dozen kilobytes.

    Parameters
    ----------
    record
        The run.
    kinds
        The charts, as in `line_charts.KINDS`.
    name
        Name of the model, for readers who cannot see the picture.
    """
    metrics = METRICS in kinds
    charts = [chart for chart in LINE_CHARTS if chart.name in kinds]
    picture = _Picture(record, fit=metrics)
    for metric in (record.metrics.drawn or ["loss"]) if metrics else ():
        picture.metric(metric)
    for chart in charts:
        picture.lines(chart, last=chart is charts[-1])
    shown = f"Curves of {name}" if name else "Curves of a fit" if metrics else "Memory"
    return picture.finish(shown, _description(record, charts, metrics=metrics))


def _description(record: RunRecord, charts: Sequence[LineChart], *, metrics: bool) -> str:
    """Return sentences for readers who cannot see the picture: last and best values."""
    sentences = []
    if metrics:
        sentences += [
            sentence(metric, record.curves, record.metrics.of(metric))
            for metric in record.metrics.drawn
        ]
        sentences += [f"{noted.curve} became {noted.full}" for noted in record.not_finite]
    sentences += [chart.sentence(record) for chart in charts]
    last = record.lines.last()
    span = f"Over {units.duration(last[0])}. " if last is not None else ""
    return span + " ".join(f"{text}." for text in sentences if text)


class _Picture:
    """Charts stacked over the same time axis."""

    def __init__(self, record: RunRecord, *, fit: bool) -> None:
        self._record = record
        self._data = record.lines.data()
        times = self._data["time"]
        start = times[0] if times and not fit else 0.0
        end = times[-1] if times else 1.0
        self._start, self._end = start, end if end > start else start + 1.0
        self._top = 0.0
        self._parts: list[str] = []

    def metric(self, metric: str) -> None:
        """Draw the chart of a metric."""
        record = self._record
        curves = [curve for curve in record.metrics.of(metric) if curve in record.curves]
        shown = styles(curves)
        points = {
            style: self._points(record.curves[style.curve].data(), "value") for style in shown
        }
        values = [value for each in points.values() for _, value in each]
        text = title(metric, record.curves, curves) if curves else metric
        first = self._top == 0.0
        entries = [(style.label, style.color, style.dashes) for style in shown]
        height = FIRST_HEIGHT if first else HEIGHT
        frame = self._frame(height, text, entries, *_ticks(values), epochs=first)
        self._marks(frame)
        if first:
            self._number_epochs(frame)
        drawn = record.metrics.drawn
        for place, noted in enumerate(record.not_finite):
            elsewhere = noted.metric in drawn and noted.metric != metric
            if not elsewhere and (noted.metric == metric or first):
                self._parts.append(frame.not_finite(noted, record.began, place))
        for style in shown:
            self._curve(frame, style, points[style])
        best = best_of(record.curves, curves)
        if best is not None:
            at = (frame.x(best.time), frame.y(best.value))
            self._parts.append(
                f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="5.5" fill="none" '
                f'stroke="{palette.BEST}" stroke-width="1.6"/>'
            )
        self._end_chart(frame)

    def lines(self, chart: LineChart, *, last: bool) -> None:
        """Draw a chart of columns; the last one explains the marks of compilations."""
        record = self._record
        points = [self._points(self._data, each.column) for each in chart.lines]
        known = [value for each in points for _, value in each if math.isfinite(value)]
        ticks, label = (
            (memory_ticks(max(known, default=0.0), record.limit), units.capacity)
            if chart.of_memory
            else _ticks(known, low=0.0)
        )
        text = chart.title(record)
        if last and any(mark.kind == "compilation" for mark in record.marks):
            text += ", dashed vertical lines: graph compilations"
        entries = [(each.name, each.color, each.dashes) for each in chart.lines]
        frame = self._frame(chart.height, text, entries, ticks, label)
        self._marks(frame)
        for each, values in zip(chart.lines, points, strict=True):
            self._parts += line(frame, values, each.color, each.dashes)
        if chart.of_memory and ticks[-1] >= record.limit:
            at = frame.y(record.limit)
            right = palette.WIDTH - frame.right
            self._parts.append(drawing.rule(palette.LEFT, at, right, at, 0.9, palette.COMPILATION))
        self._end_chart(frame)

    def finish(self, shown: str, description: str) -> str:
        """Return the picture, with the time axis below the charts."""
        bottom = self._top - _GAP
        frame = Frame(self._start, self._end, 0.0, bottom, [0.0, 1.0])
        ticks = drawing.round_numbers(self._start, self._end, 6)
        self._parts += [
            _centred(frame.x(tick), bottom + 15, _time_label(tick))
            for tick in ticks
            if self._start <= tick <= self._end
        ]
        return drawing.image(palette.WIDTH, bottom + _FOOT, self._parts, shown, description)

    def _frame(
        self,
        height: int,
        text: str,
        entries: Sequence[tuple[str, str, str]],
        ticks: list[float],
        label: Callable[[float], str],
        *,
        epochs: bool = False,
    ) -> Frame:
        entries = entries if len(entries) > 1 else []
        legends, baseline = legend(text, self._top + _BASELINE, entries)
        top = baseline - _BASELINE + _TITLE
        top += palette.EPOCHS_HEIGHT if epochs and len(self._record.epochs) > 1 else 0
        frame = Frame(self._start, self._end, top, top + height - 30, ticks)
        self._parts += [drawing.text(palette.LEFT, self._top + _BASELINE, text), *legends]
        right = palette.WIDTH - frame.right
        for tick in ticks:
            at = frame.y(tick)
            self._parts.append(drawing.rule(palette.LEFT, at, right, at, 0.3))
            place = (palette.LEFT - 8, at + 3.5)
            number = label(tick)
            self._parts.append(drawing.text(*place, number, "end", 10, most=palette.LEFT - 10))
        return frame

    def _end_chart(self, frame: Frame) -> None:
        self._top = frame.bottom + _GAP

    def _curve(self, frame: Frame, style: Style, points: list[Point]) -> None:
        self._parts += line(frame, points, style.color, style.dashes)
        if style.dots:
            known = [point for point in points if math.isfinite(point[1])]
            self._parts += [dot(frame, *point, style.color) for point in thinned(known)]

    def _marks(self, frame: Frame) -> None:
        """Draw vertical lines at the starts of epochs and at compilations."""
        for began in self._record.epochs.data()["time"]:
            if self._start <= began <= self._end:
                at = frame.x(began)
                self._parts.append(drawing.rule(at, frame.top, at, frame.bottom, 0.35))
        for mark in self._record.marks:
            if mark.kind == "compilation" and self._start <= mark.time <= self._end:
                at, dashes = frame.x(mark.time), palette.COMPILATION_DASHES
                rule = drawing.rule(
                    at, frame.top, at, frame.bottom, 0.6, palette.COMPILATION, dashes
                )
                self._parts.append(f"<g><title>{escape(mark.text)}</title>{rule}</g>")

    def _number_epochs(self, frame: Frame) -> None:
        data = self._record.epochs.data()
        labels = epoch_labels([frame.x(at) for at in data["time"]], data["number"])
        self._parts += [
            _centred(frame.x(at), frame.top - 4, label, left=palette.LEFT)
            for at, label in zip(data["time"], labels, strict=True)
            if label and self._start <= at <= self._end
        ]

    def _points(self, data: dict[str, list[float]], name: str) -> list[Point]:
        return list(zip(data["time"], data[name], strict=True))


def _centred(x: float, baseline: float, text: str, left: float = 0.0) -> str:
    """Return text centred at ``x``, moved if it would begin left of ``left`` or be cut off."""
    half = palette.width_of(text) / 2
    if x + half > palette.WIDTH:
        return drawing.text(palette.WIDTH, baseline, text, "end", 10)
    if x - half < left:
        return drawing.text(left, baseline, text, "start", 10)
    return drawing.text(x, baseline, text, "middle", 10)


def _time_label(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 600 else units.duration(seconds)


def _ticks(
    values: Sequence[float], low: float | None = None
) -> tuple[list[float], Callable[[float], str]]:
    """Return round numbers around all values, and the function that formats them."""
    known = [value for value in values if math.isfinite(value)] or [0.0]
    ticks = drawing.round_numbers(min(known) if low is None else low, max(known), 4)
    width = float(f"{ticks[1] - ticks[0]:.3g}")  # far from zero, the last bits are lost
    if not 1e-5 < width < 1e6:
        return ticks, lambda tick: f"{tick:.4g}"
    digits = next(d for d in range(8) if abs(width * 10**d - round(width * 10**d)) < 1e-6)
    return ticks, lambda tick: f"{tick:.{digits}f}"
