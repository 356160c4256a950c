"""Pieces of the picture of a run: a chart's frame, its lines and their legend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from hpu_magic.panels import palette
from hpu_magic.runtime.measure.not_finite import NotFinite
from hpu_magic.runtime.present import drawing

_POINTS = 240
_LEGEND_HEIGHT = 14
_RIGHT = 24
_ROOM = palette.WIDTH - palette.LEFT - _RIGHT

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """One chart's part of the picture: pixels from top to bottom, times from start to end."""

    start: float
    end: float
    top: float
    bottom: float
    ticks: list[float]
    right: float = _RIGHT

    def x(self, time: float) -> float:
        """Return the place of a time."""
        width = palette.WIDTH - palette.LEFT - _RIGHT
        return palette.LEFT + width * (time - self.start) / (self.end - self.start)

    def y(self, value: float) -> float:
        """Return the place of a value."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.bottom - (self.bottom - self.top) * (value - low) / (high - low)

    def broken(self, one: NotFinite, began: float, place: int) -> str:
        """Mark where a curve became NaN or infinite; labels of the same time lie apart."""
        at = self.x(one.moment - began)
        right = at > palette.WIDTH * 0.75
        rule = drawing.rule(at, self.top, at, self.bottom, 0.9, palette.BROKEN, "2 3")
        words = drawing.text(
            at + (-5 if right else 5),
            self.bottom - 6 - 13 * (place % 4),
            f"{one.curve} {one.value}, step {one.step}",
            "end" if right else "start",
            11,
            palette.BROKEN,
        )
        return f"<g><title>{escape(f'{one.curve} {one.full}')}</title>{rule}{words}</g>"


def line(frame: Frame, points: Sequence[Point], colour: str, dashes: str = "") -> list[str]:
    """Return a line through points, broken where nothing is known."""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    found = [thinned(run) for run in runs(points)]
    path = "".join(
        "M" + "L".join(f"{frame.x(t):.1f} {frame.y(v):.1f}" for t, v in run) for run in found
    )
    if not path:
        return []
    # A line of one point would not be seen.
    alone = [dot(frame, *run[0], colour) for run in found if len(run) == 1]
    line = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'
    return [line, *alone]


def dot(frame: Frame, time: float, value: float, colour: str) -> str:
    """Return a dot at a value."""
    return f'<circle cx="{frame.x(time):.1f}" cy="{frame.y(value):.1f}" r="2.5" fill="{colour}"/>'


def runs(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Return the stretches between gaps."""
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
    """Keep both ends, and the lowest and the highest point of each of equal stretches."""
    if len(points) <= _POINTS:
        return points
    size = 2 * len(points) / _POINTS
    kept = {points[0], points[-1]}
    for stretch in range(_POINTS // 2):
        part = points[int(stretch * size) : int((stretch + 1) * size)]
        kept |= {min(part, key=_value), max(part, key=_value)}
    return sorted(kept)


def _value(point: Point) -> float:
    return point[1]


def legend(
    title: str, baseline: float, entries: Sequence[tuple[str, str, str]]
) -> tuple[list[str], float]:
    """Return words, colours and dashes in lines that end on the right, and the last baseline.

    The first line has as many as there is room for next to the title.
    """
    parts: list[str] = []
    fitting: list[tuple[str, str, str]] = []
    room = _ROOM - palette.width_of(title)
    for entry in entries:
        if palette.legend_width([word for word, *_ in [*fitting, entry]]) > room:
            parts += _legend_line(baseline, fitting)
            fitting, room, baseline = [], _ROOM, baseline + _LEGEND_HEIGHT
        fitting.append(entry)
    return parts + _legend_line(baseline, fitting), baseline


def _legend_line(baseline: float, entries: Sequence[tuple[str, str, str]]) -> list[str]:
    parts, right = [], float(palette.WIDTH - _RIGHT)
    for word, colour, dashes in reversed(entries):
        parts.append(drawing.text(right, baseline, word, "end"))
        right -= palette.width_of(word) + 4
        dash = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<line x1="{right - 28:.1f}" y1="{baseline - 4:.1f}" x2="{right:.1f}" '
            f'y2="{baseline - 4:.1f}" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        right -= 40
    return parts
