"""Pieces of the picture of a run: the frame of a chart, its lines and their legend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from hpu_magic.panels import palette
from hpu_magic.runtime.present import drawing
from hpu_magic.runtime.training.not_finite import NotFinite

_POINTS = 240
_LEGEND_HEIGHT = 14
_RIGHT = 24
_ROOM = palette.WIDTH - palette.LEFT - _RIGHT

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """The area of one chart: ``top`` and ``bottom`` in pixels, ``start`` and ``end`` in seconds."""

    start: float
    end: float
    top: float
    bottom: float
    ticks: list[float]
    right: float = _RIGHT

    def x(self, time: float) -> float:
        """Return the x coordinate of a time."""
        width = palette.WIDTH - palette.LEFT - _RIGHT
        return palette.LEFT + width * (time - self.start) / (self.end - self.start)

    def y(self, value: float) -> float:
        """Return the y coordinate of a value."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.bottom - (self.bottom - self.top) * (value - low) / (high - low)

    def not_finite(self, noted: NotFinite, began: float, place: int) -> str:
        """Return a mark at which a curve became NaN or infinite; ``place`` separates labels."""
        at = self.x(noted.moment - began)
        right = at > palette.WIDTH * 0.75
        rule = drawing.rule(at, self.top, at, self.bottom, 0.9, palette.NOT_FINITE, "2 3")
        label = drawing.text(
            at + (-5 if right else 5),
            self.bottom - 6 - 13 * (place % 4),
            f"{noted.curve} {noted.value}, step {noted.step}",
            "end" if right else "start",
            11,
            palette.NOT_FINITE,
        )
        return f"<g><title>{escape(f'{noted.curve} {noted.full}')}</title>{rule}{label}</g>"


def line(frame: Frame, points: Sequence[Point], color: str, dashes: str = "") -> list[str]:
    """Return a line through points, with gaps at values that are not finite."""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    pieces = [thinned(run) for run in runs(points)]
    path = "".join(
        "M" + "L".join(f"{frame.x(t):.1f} {frame.y(v):.1f}" for t, v in run) for run in pieces
    )
    if not path:
        return []
    # A line of one point is invisible.
    alone = [dot(frame, *run[0], color) for run in pieces if len(run) == 1]
    line = f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.6"{dash}/>'
    return [line, *alone]


def dot(frame: Frame, time: float, value: float, color: str) -> str:
    """Return a dot at a point."""
    return f'<circle cx="{frame.x(time):.1f}" cy="{frame.y(value):.1f}" r="2.5" fill="{color}"/>'


def runs(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the finite points between gaps."""
    run: list[Point] = []
    for point in points:
        if math.isfinite(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def thinned(points: list[Point]) -> list[Point]:
    """Return both ends, and the lowest and the highest point of each of equal parts."""
    if len(points) <= _POINTS:
        return points
    size = 2 * len(points) / _POINTS
    kept = {points[0], points[-1]}
    for index in range(_POINTS // 2):
        part = points[int(index * size) : int((index + 1) * size)]
        kept |= {min(part, key=_value), max(part, key=_value)}
    return sorted(kept)


def _value(point: Point) -> float:
    return point[1]


def legend(
    title: str, baseline: float, entries: Sequence[tuple[str, str, str]]
) -> tuple[list[str], float]:
    """Return the legend, right-aligned, and the baseline of its last line.

    Entries are label, color and dashes. The first line is next to the title.
    """
    parts: list[str] = []
    fitting: list[tuple[str, str, str]] = []
    room = _ROOM - palette.width_of(title)
    for entry in entries:
        if palette.legend_width([label for label, *_ in [*fitting, entry]]) > room:
            parts += _legend_line(baseline, fitting)
            fitting, room, baseline = [], _ROOM, baseline + _LEGEND_HEIGHT
        fitting.append(entry)
    return parts + _legend_line(baseline, fitting), baseline


def _legend_line(baseline: float, entries: Sequence[tuple[str, str, str]]) -> list[str]:
    parts, right = [], float(palette.WIDTH - _RIGHT)
    for label, color, dashes in reversed(entries):
        parts.append(drawing.text(right, baseline, label, "end"))
        right -= palette.width_of(label) + 4
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<line x1="{right - 28:.1f}" y1="{baseline - 4:.1f}" x2="{right:.1f}" '
            f'y2="{baseline - 4:.1f}" stroke="{color}" stroke-width="2"{dash}/>'
        )
        right -= 40
    return parts
