"""The static picture a panel leaves in the notebook: plain SVG, no script, no fonts.

It is drawn in the colours and proportions of the live charts and reads without
a kernel, on a light page and on a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.record import RunRecord
from hpu_magic.runtime.present import drawing

__all__ = ["draw"]

_POINTS = 240
_TITLE = 18
_GAP = 10
_FOOT = 20
_RIGHT = 14

_LOGGED = "logged "

Point = tuple[float, float]


def draw(record: RunRecord, kinds: Sequence[str] = ("loss", "speed", "memory")) -> str:
    """Return the run as an SVG image of at most a few dozen kilobytes."""
    data = record.lines.data()
    times = data["time"]
    start = times[0] if times and "loss" not in kinds else 0.0
    end = times[-1] if times else 1.0
    panel = _Panel(start, end if end > start else start + 1.0)
    top = 0.0
    parts: list[str] = []
    for kind in kinds:
        lines = {name: list(zip(times, data[name], strict=True)) for name in data}
        lines["validation"] = list(record.validation)
        for name, trace in record.logged.items():
            logged = trace.data()
            lines[_LOGGED + name] = list(zip(logged["time"], logged["value"], strict=True))
        parts += panel.chart(kind, top, lines, record)
        top += _TITLE + palette.HEIGHTS[kind] - 30 + _GAP
    parts += panel.time_axis(top - _GAP)
    height = top - _GAP + _FOOT
    return drawing.image(palette.WIDTH, height, parts)


class _Panel:
    """Draws charts one below the other over the same time from ``start`` to ``end``."""

    def __init__(self, start: float, end: float) -> None:
        self._start, self._end = start, end

    def x(self, time: float) -> float:
        width = palette.WIDTH - palette.LEFT - _RIGHT
        return palette.LEFT + width * (time - self._start) / (self._end - self._start)

    def chart(
        self, kind: str, top: float, lines: dict[str, list[Point]], record: RunRecord
    ) -> list[str]:
        shown = _shown(kind, record)
        ticks, label = _ticks_of(kind, [y for name, *_ in shown for _, y in lines[name]])
        low, high = ticks[0], ticks[-1]
        plot_top, bottom = top + _TITLE, top + _TITLE + palette.HEIGHTS[kind] - 30

        def y(value: float) -> float:
            return bottom - (bottom - plot_top) * (value - low) / (high - low)

        parts = [drawing.text(palette.LEFT, top + 11, _title(kind, record))]
        if kind == "loss":
            parts += _legend(top + 11, _entries(shown, bool(lines["validation"])))
        for tick in ticks:
            parts.append(drawing.rule(palette.LEFT, y(tick), palette.WIDTH - _RIGHT, y(tick), 0.3))
            parts.append(drawing.text(palette.LEFT - 8, y(tick) + 3.5, label(tick), "end", 10))
        parts += self._marks(record, plot_top, bottom)
        if kind == "loss":
            parts += self._broken(record, plot_top, bottom)
        for name, colour, dashes in shown:
            path = _path(points := [(self.x(t), y(v)) for t, v in _thin(lines[name])])
            if name == "in_use" and points:
                area = f"{path}L{points[-1][0]:.1f} {bottom:.1f}L{points[0][0]:.1f} {bottom:.1f}Z"
                parts.append(f'<path d="{area}" fill="{colour}" fill-opacity="0.18"/>')
            dash = f' stroke-dasharray="{dashes}"' if dashes else ""
            parts.append(
                f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'
            )
        parts += [
            f'<circle cx="{self.x(t):.1f}" cy="{y(v):.1f}" r="2.5" fill="{palette.VALIDATION}"/>'
            for t, v in (_thin(lines["validation"]) if kind == "loss" else ())
        ]
        return parts

    def _marks(self, record: RunRecord, top: float, bottom: float) -> list[str]:
        parts = []
        for mark in record.marks:
            if mark.kind == "compilation" and self._start <= mark.time <= self._end:
                at = self.x(mark.time)
                dashes = palette.COMPILATION_DASHES
                line = drawing.rule(at, top, at, bottom, 0.6, palette.COMPILATION, dashes)
                parts.append(f"<g><title>{escape(mark.text)}</title>{line}</g>")
        return parts

    def _broken(self, record: RunRecord, top: float, bottom: float) -> list[str]:
        """Mark where curves became NaN or infinite."""
        parts = []
        for place, one in enumerate(record.not_finite):
            at = self.x(one.moment - record.began)
            right = at > palette.WIDTH * 0.75
            words = f"{one.curve} {one.value}, step {one.step}"
            line = drawing.rule(at, top, at, bottom, 0.9, palette.BROKEN, "2 3")
            height = top + 12 + 13 * (place % 5)
            text = drawing.text(
                at + (-5 if right else 5),
                height,
                words,
                "end" if right else "start",
                11,
                palette.BROKEN,
            )
            parts.append(f"<g><title>{escape(f'{one.curve} {one.full}')}</title>{line}{text}</g>")
        return parts

    def time_axis(self, bottom: float) -> list[str]:
        ticks = [t for t in drawing.round_numbers(self._start, self._end, 6) if t <= self._end]
        if self._start > ticks[0]:
            ticks = ticks[1:]
        return [drawing.text(self.x(t), bottom + 15, _time_label(t), "middle", 10) for t in ticks]


def _time_label(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 600 else units.duration(seconds)


def _shown(kind: str, record: RunRecord) -> list[tuple[str, str, str]]:
    """Return the curves of a chart: name, colour and dashes."""
    if kind == "speed":
        return [("speed", palette.SPEED, "")]
    if kind == "memory":
        return [("in_use", palette.MEMORY, ""), ("peak", palette.MEMORY, "4 3")]
    validation = ("validation", palette.VALIDATION, "")
    if not record.logged:
        return [("train", palette.TRAIN, ""), validation]
    styles = zip(record.logged, palette.CURVES, strict=False)
    return [*((_LOGGED + name, *style) for name, style in styles), validation]


def _title(kind: str, record: RunRecord) -> str:
    if kind == "loss":
        return "logged values" if record.logged else "loss"
    if kind == "speed":
        return "steps per second"
    compiled = any(mark.kind == "compilation" for mark in record.marks)
    title = "device memory: in use, and peak (dashed)"
    title += f", of {units.size(record.limit)}" if math.isfinite(record.limit) else ""
    return title + (", dashed vertical lines: graph compilations" if compiled else "")


def _entries(
    shown: Sequence[tuple[str, str, str]], with_validation: bool
) -> list[tuple[str, str, str]]:
    """Return what the legend of the loss names: words, colour and dashes."""
    return [
        ("training" if name == "train" else name.removeprefix(_LOGGED), colour, dashes)
        for name, colour, dashes in shown
        if with_validation or name != "validation"
    ]


def _legend(baseline: float, entries: Sequence[tuple[str, str, str]]) -> list[str]:
    parts, right = [], float(palette.WIDTH - _RIGHT)
    for word, colour, dashes in reversed(entries):
        parts.append(drawing.text(right, baseline, word, "end"))
        right -= 6.1 * len(word) + 4
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<line x1="{right - 28:.1f}" y1="{baseline - 4:.1f}" x2="{right:.1f}" '
            f'y2="{baseline - 4:.1f}" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        right -= 40
    return parts


def _ticks_of(kind: str, values: list[float]) -> tuple[list[float], Callable[[float], str]]:
    known = [value for value in values if math.isfinite(value)] or [0.0]
    if kind == "memory":
        unit = 1024.0 ** max(0, math.floor(math.log(max(*known, 1.0), 1024)))
        top = max(known) / unit
        return [unit * t for t in drawing.round_numbers(0.0, top, 3)], units.size
    low = 0.0 if kind == "speed" else min(known)
    ticks = drawing.round_numbers(low, max(known), 4)
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    return ticks, lambda tick: f"{tick:.{digits}f}"


def _thin(points: list[Point]) -> list[Point]:
    """Keep the lowest and the highest point of each of equal stretches, in order of time."""
    points = [point for point in points if math.isfinite(point[1])]
    if len(points) <= _POINTS:
        return points
    size = 2 * len(points) / _POINTS
    kept = []
    for stretch in range(_POINTS // 2):
        part = points[int(stretch * size) : int((stretch + 1) * size)]
        kept += sorted({min(part, key=_value), max(part, key=_value)})
    if kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def _value(point: Point) -> float:
    return point[1]


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""
