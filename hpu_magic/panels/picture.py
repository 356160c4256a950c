"""The static picture a panel leaves in the notebook: plain SVG, no script, no fonts.

It has the charts of the live panel, in their colours and proportions, and reads without
a kernel, on a light page and on a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.alternative import described
from hpu_magic.panels.memory_chart import LEGEND, memory_ticks, memory_title
from hpu_magic.panels.metric_chart import Style, best_of, epoch_labels, styles, title
from hpu_magic.panels.picture_parts import Frame, Point, dot, legend, line, thinned
from hpu_magic.panels.record import RunRecord
from hpu_magic.runtime.present import drawing

_TITLE, _BASELINE = 18, 11
_GAP = 10
_FOOT = 20
_KINDS = ("loss", "speed", "memory")


def draw(record: RunRecord, kinds: Sequence[str] = _KINDS, name: str = "") -> str:
    """Return the run as an SVG image of at most a few dozen kilobytes.

    Parameters
    ----------
    record
        The run.
    kinds
        Which charts, from top to bottom; ``loss`` stands for all metrics.
    name
        What ran, for those who do not see the picture.
    """
    picture = _Picture(record, fit="loss" in kinds)
    if "loss" in kinds:
        drawn = record.metrics.drawn or ["loss"]
        for metric in drawn:
            picture.metric(metric, "loss" if metric is drawn[0] else "metric")
    if "speed" in kinds:
        picture.speed()
    if "memory" in kinds:
        picture.memory()
    shown = f"Curves of {name}" if name else "Curves of a fit" if "loss" in kinds else "Memory"
    return picture.finish(shown, described(record, kinds))


class _Picture:
    """Charts one below the other over the same time."""

    def __init__(self, record: RunRecord, *, fit: bool) -> None:
        self._record = record
        self._data = record.lines.data()
        times = self._data["time"]
        start = times[0] if times and not fit else 0.0
        end = times[-1] if times else 1.0
        self._start, self._end = start, end if end > start else start + 1.0
        self._top = 0.0
        self._parts: list[str] = []

    def metric(self, metric: str, kind: str) -> None:
        """Draw the chart of a metric."""
        record = self._record
        curves = [one for one in record.metrics.of(metric) if one in record.curves]
        shown = styles(curves)
        points = {one: self._points(record.curves[one.curve].data(), "value") for one in shown}
        values = [value for each in points.values() for _, value in each]
        words = title(metric, record.curves, curves) if curves else metric
        first = self._top == 0.0
        entries = [(one.words, one.colour, one.dashes) for one in shown]
        entries = entries if len(entries) > 1 else []
        frame = self._frame(kind, words, entries, *_ticks(values), epochs=first)
        self._marks(frame)
        if first:
            self._number_epochs(frame)
        drawn = record.metrics.drawn
        for place, broken in enumerate(record.not_finite):
            elsewhere = broken.metric in drawn and broken.metric != metric
            if not elsewhere and (broken.metric == metric or first):
                self._parts.append(frame.broken(broken, record.began, place))
        for one in shown:
            self._curve(frame, one, points[one])
        best = best_of(record.curves, curves)
        if best is not None:
            at = (frame.x(best.time), frame.y(best.value))
            self._parts.append(
                f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="5.5" fill="none" '
                f'stroke="{palette.BEST}" stroke-width="1.6"/>'
            )
        self._end_chart(frame)

    def speed(self) -> None:
        """Draw steps per second."""
        points = self._points(self._data, "speed")
        ticks, label = _ticks([value for _, value in points], low=0.0)
        frame = self._frame("speed", "steps per second", [], ticks, label)
        self._marks(frame)
        self._parts += line(frame, points, palette.SPEED)
        self._end_chart(frame)

    def memory(self) -> None:
        """Draw memory in use and its peak, and the limit if that is near."""
        record = self._record
        in_use, peak = (self._points(self._data, name) for name in ("in_use", "peak"))
        known = [value for _, value in in_use + peak if math.isfinite(value)]
        ticks = memory_ticks(max(known, default=0.0), record.limit)
        compiled = any(mark.kind == "compilation" for mark in record.marks)
        words = memory_title(max(known, default=math.nan), record.limit)
        words += ", dashed vertical lines: graph compilations" if compiled else ""
        entries = [(word, palette.MEMORY, dashes) for word, dashes in LEGEND]
        frame = self._frame("memory", words, entries, ticks, units.capacity)
        self._marks(frame)
        for points, (_, dashes) in zip((in_use, peak), LEGEND, strict=True):
            self._parts += line(frame, points, palette.MEMORY, dashes)
        if ticks[-1] >= record.limit:
            at = frame.y(record.limit)
            right = palette.WIDTH - frame.right
            self._parts.append(drawing.rule(palette.LEFT, at, right, at, 0.9, palette.COMPILATION))
        self._end_chart(frame)

    def finish(self, shown: str, description: str) -> str:
        """Return the picture, with the axis below."""
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
        kind: str,
        words: str,
        entries: Sequence[tuple[str, str, str]],
        ticks: list[float],
        label: Callable[[float], str],
        *,
        epochs: bool = False,
    ) -> Frame:
        legends, baseline = legend(words, self._top + _BASELINE, entries)
        top = baseline - _BASELINE + _TITLE
        top += palette.EPOCHS_HEIGHT if epochs and len(self._record.epochs) > 1 else 0
        frame = Frame(self._start, self._end, top, top + palette.HEIGHTS[kind] - 30, ticks)
        self._parts += [drawing.text(palette.LEFT, self._top + _BASELINE, words), *legends]
        right = palette.WIDTH - frame.right
        for tick in ticks:
            at = frame.y(tick)
            self._parts.append(drawing.rule(palette.LEFT, at, right, at, 0.3))
            place = (palette.LEFT - 8, at + 3.5)
            words = label(tick)
            self._parts.append(drawing.text(*place, words, "end", 10, most=palette.LEFT - 10))
        return frame

    def _end_chart(self, frame: Frame) -> None:
        self._top = frame.bottom + _GAP

    def _curve(self, frame: Frame, style: Style, points: list[Point]) -> None:
        self._parts += line(frame, points, style.colour, style.dashes)
        if style.dots:
            known = [point for point in points if math.isfinite(point[1])]
            self._parts += [dot(frame, *point, style.colour) for point in thinned(known)]

    def _marks(self, frame: Frame) -> None:
        """Draw where epochs began and graphs were compiled."""
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
            _centred(frame.x(at), frame.top - 4, words, left=palette.LEFT)
            for at, words in zip(data["time"], labels, strict=True)
            if words and self._start <= at <= self._end
        ]

    def _points(self, data: dict[str, list[float]], name: str) -> list[Point]:
        return list(zip(data["time"], data[name], strict=True))


def _centred(x: float, baseline: float, words: str, left: float = 0.0) -> str:
    """Return words centred at a place, moved if they would begin before ``left`` or be cut."""
    half = palette.width_of(words) / 2
    if x + half > palette.WIDTH:
        return drawing.text(palette.WIDTH, baseline, words, "end", 10)
    if x - half < left:
        return drawing.text(left, baseline, words, "start", 10)
    return drawing.text(x, baseline, words, "middle", 10)


def _time_label(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 600 else units.duration(seconds)


def _ticks(
    values: Sequence[float], low: float | None = None
) -> tuple[list[float], Callable[[float], str]]:
    """Return round numbers around all values, and what writes them."""
    known = [value for value in values if math.isfinite(value)] or [0.0]
    ticks = drawing.round_numbers(min(known) if low is None else low, max(known), 4)
    width = float(f"{ticks[1] - ticks[0]:.3g}")  # far from zero the last bits are missing
    if not 1e-5 < width < 1e6:
        return ticks, lambda tick: f"{tick:.4g}"
    digits = next(d for d in range(8) if abs(width * 10**d - round(width * 10**d)) < 1e-6)
    return ticks, lambda tick: f"{tick:.{digits}f}"
