"""Parts of the picture of a run: the frame of a chart, its lines and its legend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from hpu_magic.panels import palette
from hpu_magic.runtime.present import drawing
from hpu_magic.runtime.training.not_finite import NotFinite

Point = tuple[float, float]
Entry = tuple[str, str, str]
"""A legend entry: its label, color and dashes."""


@dataclass(frozen=True)
class PictureLayout:
    """Sizes for wide or narrow pictures, in pixels."""

    width: int
    left: int  # margin of the plots for the labels of their axes
    right: int  # right margin, with space for half of the last time label
    head: int  # height of the title row
    baseline: int  # baseline of the title in its row
    line: int  # height of each additional legend row
    epochs: int  # height of the row of epoch numbers
    gap: int  # between charts
    foot: int  # height of the time axis
    number_size: int  # size of the text along the axes
    time_ticks: int  # number of intervals on the time axis
    sample: int  # length of a line sample in the legend
    ring: float  # radius of the ring around the best value
    points: int  # maximum number of points in a curve

    @property
    def room(self) -> int:
        """Width of the plots."""
        return self.width - self.left - self.right

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", most: float = math.inf
    ) -> str:
        """Return the SVG text of a title or legend, condensed if it is wider than ``most``."""
        return drawing.text(x, y, words, anchor, most=most)

    def number(
        self, x: float, y: float, words: str, anchor: str = "start", most: float = math.inf
    ) -> str:
        """Return the SVG text of an axis label, condensed if it is wider than ``most``."""
        return drawing.text(x, y, words, anchor, self.number_size, most=most)


WIDE = PictureLayout(
    palette.WIDTH, palette.LEFT, 24, 18, 11, 14, palette.EPOCHS_HEIGHT, 10, 20, 10, 6, 28, 5.5, 240
)
NARROW = PictureLayout(340, 50, 14, 14, 10, 12, 0, 4, 17, 11, 3, 14, 4.0, 80)


@dataclass(frozen=True)
class Frame:
    """A chart's area: ``top`` and ``bottom`` are in pixels, ``start`` and ``end`` in seconds."""

    layout: PictureLayout
    start: float
    end: float
    top: float
    bottom: float
    ticks: list[float]

    def x(self, time: float) -> float:
        """Return the x coordinate for a time."""
        share = (time - self.start) / (self.end - self.start)
        return self.layout.left + self.layout.room * share

    def y(self, value: float) -> float:
        """Return the y coordinate for a value."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.bottom - (self.bottom - self.top) * (value - low) / (high - low)

    def not_finite(self, noted: NotFinite, began: float, place: int) -> str:
        """Mark where a curve became NaN or infinite; ``place`` keeps the labels apart."""
        at, text = self.x(noted.moment - began), f"{noted.curve} {noted.value}, step {noted.step}"
        width = self.layout.width
        right = at > width / 2 and at + 5 + palette.width_of(text) > width
        rule = drawing.rule(at, self.top, at, self.bottom, 0.9, palette.NOT_FINITE, "2 3")
        rows = max(1, min(4, int((self.bottom - self.top) / 13)))
        label = drawing.text(
            at + (-5 if right else 5),
            self.bottom - 6 - 13 * (place % rows),
            text,
            "end" if right else "start",
            11,
            palette.NOT_FINITE,
            (at if right else width - at) - 5,
        )
        return f"<g><title>{escape(f'{noted.curve} {noted.full}')}</title>{rule}{label}</g>"


def line(frame: Frame, points: Sequence[Point], color: str, dashes: str = "") -> list[str]:
    """Return a line through points, with gaps where values are not finite."""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    pieces = [thinned(run, frame.layout.points) for run in runs(points)]
    path = "".join(
        "M" + "L".join(f"{frame.x(t):.1f} {frame.y(v):.1f}" for t, v in run) for run in pieces
    )
    if not path:
        return []
    # A line with only one point is invisible.
    alone = [dot(frame, *run[0], color) for run in pieces if len(run) == 1]
    line = f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.6"{dash}/>'
    return [line, *alone]


def dot(frame: Frame, time: float, value: float, color: str) -> str:
    """Return a dot at a point."""
    return f'<circle cx="{frame.x(time):.1f}" cy="{frame.y(value):.1f}" r="2.5" fill="{color}"/>'


def runs(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield each sequence of finite points between gaps."""
    run: list[Point] = []
    for point in points:
        if math.isfinite(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def thinned(points: list[Point], most: int = 240) -> list[Point]:
    """Return a line's ends, and the lowest and highest point in each of several equal parts."""
    if len(points) <= most:
        return points
    size = 2 * len(points) / most
    kept = {points[0], points[-1]}
    for index in range(most // 2):
        part = points[int(index * size) : int((index + 1) * size)]
        kept |= {min(part, key=_value), max(part, key=_value)}
    return sorted(kept)


def _value(point: Point) -> float:
    return point[1]


def legend_rows(layout: PictureLayout, title: str, entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return the entries in each row of a legend; the first row is next to the title."""
    rows: list[list[Entry]] = [[]]
    room = layout.room - palette.width_of(title)
    for entry in entries:
        if palette.legend_width([label for label, *_ in [*rows[-1], entry]]) > room:
            rows.append([])
            room = layout.room
        rows[-1].append(entry)
    return rows


def legend(layout: PictureLayout, baseline: float, rows: Sequence[Sequence[Entry]]) -> list[str]:
    """Return a right-aligned legend whose first row has the given baseline."""
    parts, most = [], layout.room - layout.sample - 4
    for row in rows:
        right = float(layout.width - layout.right)
        for label, color, dashes in reversed(row):
            parts.append(layout.text(right, baseline, label, "end", most))
            right -= min(palette.width_of(label), most) + 4
            dash = f' stroke-dasharray="{dashes}"' if dashes else ""
            parts.append(
                f'<line x1="{right - layout.sample:.1f}" y1="{baseline - 4:.1f}" x2="{right:.1f}" '
                f'y2="{baseline - 4:.1f}" stroke="{color}" stroke-width="2"{dash}/>'
            )
            right -= layout.sample + 12
        baseline += layout.line
    return parts
