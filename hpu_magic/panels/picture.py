"""The static picture of a run that remains in the notebook: plain SVG without scripts or fonts.

The picture contains the charts of the live panel in the same colors. The picture does not need a
kernel, and is legible on light and dark pages. A narrow page shows a second layout of the same size
with larger text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.line_charts import KINDS, LINE_CHARTS, METRICS, LineChart, memory_ticks
from hpu_magic.panels.metric_chart import (
    FIRST_HEIGHT,
    HEIGHT,
    best_of,
    epoch_labels,
    sentence,
    styles,
    title,
)
from hpu_magic.panels.picture_parts import (
    NARROW,
    WIDE,
    Entry,
    Frame,
    PictureLayout,
    Point,
    dot,
    legend,
    legend_rows,
    line,
    thinned,
)
from hpu_magic.panels.record import RunRecord
from hpu_magic.runtime.present import drawing
from hpu_magic.runtime.training.not_finite import NotFinite

_AXIS = 30  # pixels of a chart's height that are not used by its plot
_LABEL = 12  # minimum distance between the labels of an axis, in pixels
_NARROW_PAGE = 480  # pixels; pictures up to this width use the narrow layout


def draw(record: RunRecord, kinds: Sequence[str] = KINDS, name: str = "") -> str:
    """Return the run as an SVG image of at most a few dozen kilobytes.

    `kinds` contains names from `line_charts.KINDS`, and `name` is the model's name, which is part
    of the description for screen readers.
    """
    metrics = METRICS in kinds
    listed = [chart for chart in LINE_CHARTS if chart.name in kinds]
    charts = []
    if metrics:
        names = record.metrics.drawn or ["loss"]
        charts = [_metric(record, each, first=each == names[0]) for each in names]
    charts += [_lines(record, chart, last=chart is listed[-1]) for chart in listed]
    times = record.lines.data()["time"]
    start = times[0] if times and not metrics else 0.0
    end = times[-1] if times and times[-1] > start else start + 1.0
    wide = _Picture(record, WIDE, start, end)
    height = wide.draw(charts)
    narrow = _Picture(record, NARROW, start, end)
    narrow.draw(charts, height * NARROW.width / WIDE.width)
    parts = _responsive(wide.parts, narrow.parts, height)
    shown = f"Curves of {name}" if name else "Curves of a fit" if metrics else "Memory"
    text = _description(record, listed, metrics=metrics)
    return drawing.image(WIDE.width, height, parts, shown, text)


def inline(picture: str) -> str:
    """Return a picture as HTML; the width of the output, not of the page, determines its layout."""
    return f'<div style="container-type:inline-size">{picture}</div>'


def _description(record: RunRecord, charts: Sequence[LineChart], *, metrics: bool) -> str:
    """Return the last and best values as sentences for users who cannot see the picture."""
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


@dataclass
class _Curve:
    points: list[Point]
    color: str
    dashes: str
    dots: bool = False


@dataclass
class _Chart:
    """The contents of a chart, independent of its size."""

    height: int  # height of the plot in a wide picture, in pixels
    title: str
    curves: list[_Curve]
    entries: list[Entry]  # entries of the legend
    ticks: list[float]
    label: Callable[[float], str]
    best: Point | None = None
    limit: float | None = None
    not_finite: list[tuple[int, NotFinite]] = field(default_factory=list)
    first: bool = False  # whether the chart shows the epoch numbers


def _metric(record: RunRecord, metric: str, *, first: bool) -> _Chart:
    curves = [curve for curve in record.metrics.of(metric) if curve in record.curves]
    shown = styles(curves)
    points = [_points(record.curves[style.curve].data(), "value") for style in shown]
    best = best_of(record.curves, curves)
    drawn = record.metrics.drawn
    return _Chart(
        (FIRST_HEIGHT if first else HEIGHT) - _AXIS,
        title(metric, record.curves, curves) if curves else metric,
        [
            _Curve(each, style.color, style.dashes, style.dots)
            for each, style in zip(points, shown, strict=True)
        ],
        [(style.label, style.color, style.dashes) for style in shown],
        *_ticks([value for each in points for _, value in each]),
        best=best and (best.time, best.value),
        not_finite=[
            (place, noted)
            for place, noted in enumerate(record.not_finite)
            if noted.metric == metric or (first and noted.metric not in drawn)
        ],
        first=first,
    )


def _lines(record: RunRecord, chart: LineChart, *, last: bool) -> _Chart:
    """Return a chart of columns; the last chart explains the compilation marks."""
    data = record.lines.data()
    points = [_points(data, each.column) for each in chart.lines]
    known = [value for each in points for _, value in each if math.isfinite(value)]
    ticks, label = _ticks(known, low=0.0)
    if chart.of_memory:
        ticks, label = memory_ticks(max(known, default=0.0), record.limit), units.capacity
    text = chart.title(record)
    if last and any(mark.kind == "compilation" for mark in record.marks):
        text += ", dashed vertical lines: graph compilations"
    return _Chart(
        chart.height - _AXIS,
        text,
        [
            _Curve(values, each.color, each.dashes)
            for values, each in zip(points, chart.lines, strict=True)
        ],
        [(each.name, each.color, each.dashes) for each in chart.lines],
        ticks,
        label,
        limit=record.limit if chart.of_memory and ticks[-1] >= record.limit else None,
    )


class _Picture:
    """Charts in one layout, stacked above a shared time axis."""

    def __init__(self, record: RunRecord, layout: PictureLayout, start: float, end: float) -> None:
        self.parts: list[str] = []
        self._record = record
        self._layout = layout
        self._start, self._end = start, end

    def draw(self, charts: Sequence[_Chart], height: float | None = None) -> float:
        """Draw all charts and return the height; if the height is fixed, scale the plots to fit."""
        layout = self._layout
        epochs = layout.epochs if len(self._record.epochs) > 1 else 0
        heads = [_head(layout, chart) for chart in charts]
        rest = epochs + layout.gap * (len(charts) - 1) + layout.foot
        rest += sum(layout.head + layout.line * (len(rows) - 1) for _, rows in heads)
        scale = 1.0 if height is None else (height - rest) / sum(chart.height for chart in charts)
        bottom = -float(layout.gap)
        for chart, (text, rows) in zip(charts, heads, strict=True):
            baseline = bottom + layout.gap + layout.baseline
            self.parts.append(layout.text(layout.left, baseline, text, most=layout.room))
            self.parts += legend(layout, baseline, rows)
            top = bottom + layout.gap + layout.head + layout.line * (len(rows) - 1)
            top += epochs if chart.first else 0
            bottom = top + max(1.0, scale * chart.height)
            self._chart(Frame(layout, self._start, self._end, top, bottom, chart.ticks), chart)
        frame = Frame(layout, self._start, self._end, 0.0, bottom, [0.0, 1.0])
        for tick in drawing.round_numbers(self._start, self._end, layout.time_ticks):
            if self._start <= tick <= self._end:
                self._centred(frame.x(tick), bottom + layout.foot - 5, _time_label(tick))
        return bottom + layout.foot

    def _chart(self, frame: Frame, chart: _Chart) -> None:
        layout = self._layout
        right = layout.width - layout.right
        spacing = frame.y(chart.ticks[0]) - frame.y(chart.ticks[1])
        for number, tick in enumerate(chart.ticks):
            at = frame.y(tick)
            self.parts.append(drawing.rule(layout.left, at, right, at, 0.3))
            if number % math.ceil(_LABEL / spacing) == 0:
                x, text, most = layout.left - 8, chart.label(tick), layout.left - 10
                self.parts.append(layout.number(x, at + 3.5, text, "end", most))
        self._marks(frame)
        if chart.first and layout.epochs:
            self._number_epochs(frame)
        for place, noted in chart.not_finite:
            self.parts.append(frame.not_finite(noted, self._record.began, place))
        for curve in chart.curves:
            self.parts += line(frame, curve.points, curve.color, curve.dashes)
            if curve.dots:
                known = [point for point in curve.points if math.isfinite(point[1])]
                shown = thinned(known, layout.points)
                self.parts += [dot(frame, *point, curve.color) for point in shown]
        if chart.best is not None:
            at_x, at_y = frame.x(chart.best[0]), frame.y(chart.best[1])
            self.parts.append(
                f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="{layout.ring}" fill="none" '
                f'stroke="{palette.BEST}" stroke-width="1.6"/>'
            )
        if chart.limit is not None:
            at, color = frame.y(chart.limit), palette.COMPILATION
            self.parts.append(drawing.rule(layout.left, at, right, at, 0.9, color))

    def _marks(self, frame: Frame) -> None:
        """Draw vertical lines where epochs start and where graphs were compiled."""
        for began in self._record.epochs.data()["time"]:
            if self._start <= began <= self._end:
                at = frame.x(began)
                self.parts.append(drawing.rule(at, frame.top, at, frame.bottom, 0.35))
        for mark in self._record.marks:
            if mark.kind == "compilation" and self._start <= mark.time <= self._end:
                at, style = frame.x(mark.time), (palette.COMPILATION, palette.COMPILATION_DASHES)
                rule = drawing.rule(at, frame.top, at, frame.bottom, 0.6, *style)
                self.parts.append(f"<g><title>{escape(mark.text)}</title>{rule}</g>")

    def _number_epochs(self, frame: Frame) -> None:
        data = self._record.epochs.data()
        labels = epoch_labels([frame.x(at) for at in data["time"]], data["number"])
        for at, label in zip(data["time"], labels, strict=True):
            if label and self._start <= at <= self._end:
                self._centred(frame.x(at), frame.top - 4, label, left=self._layout.left)

    def _centred(self, x: float, baseline: float, text: str, left: float = 0.0) -> None:
        """Draw text centered at ``x``, shifted if it would start left of ``left`` or be cut off."""
        half, anchor = palette.width_of(text) / 2, "middle"
        if x + half > self._layout.width:
            x, anchor = self._layout.width, "end"
        elif x - half < left:
            x, anchor = left, "start"
        self.parts.append(self._layout.number(x, baseline, text, anchor))


def _head(layout: PictureLayout, chart: _Chart) -> tuple[str, list[list[Entry]]]:
    """Return a chart's title, shortened if a narrow layout requires it, and its legend's rows."""
    entries = chart.entries if len(chart.entries) > 1 else []
    rows = legend_rows(layout, chart.title, entries)
    if layout is NARROW and (len(rows) > 1 or palette.width_of(chart.title) > layout.room):
        short = re.split("[:,]", chart.title)[0]
        return short, legend_rows(layout, short, entries)
    return chart.title, rows


def _responsive(wide: list[str], narrow: list[str], height: float) -> list[str]:
    """Return both layouts. A page that ignores styles shows only the wide layout."""
    hide_one = ".hpu-magic-wide{display:none}.hpu-magic-narrow{display:inline}"
    condition = f"(max-width:{_NARROW_PAGE}px)"
    inner = f"0 0 {NARROW.width} {height * NARROW.width / WIDE.width:.1f}"
    return [
        f"<style>@media {condition}{{{hide_one}}}@container {condition}{{{hide_one}}}</style>",
        f'<g class="hpu-magic-wide">{"".join(wide)}</g>',
        f'<svg class="hpu-magic-narrow" display="none" width="{WIDE.width}" height="{height:.0f}" '
        f'viewBox="{inner}">{"".join(narrow)}</svg>',
    ]


def _time_label(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 600 else units.duration(seconds)


def _points(data: dict[str, list[float]], name: str) -> list[Point]:
    return list(zip(data["time"], data[name], strict=True))


def _ticks(
    values: Sequence[float], low: float | None = None
) -> tuple[list[float], Callable[[float], str]]:
    """Return round numbers that span all values, and a function that formats them."""
    known = [value for value in values if math.isfinite(value)] or [0.0]
    ticks = drawing.round_numbers(min(known) if low is None else low, max(known), 4)
    width = float(f"{ticks[1] - ticks[0]:.3g}")  # for large values, the last bits are inaccurate
    if not 1e-5 < width < 1e6:
        return ticks, lambda tick: f"{tick:.4g}"
    digits = next(d for d in range(8) if abs(width * 10**d - round(width * 10**d)) < 1e-6)
    return ticks, lambda tick: f"{tick:.{digits}f}"
