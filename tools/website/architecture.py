"""Diagram of the imports between packages, from the table in docs/architecture.md."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from html import escape
from statistics import fmean

_ROW = re.compile(r"^\| `hpu_magic/(\w+)/` \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
_DRAWING = re.compile(r"^```text\n.*?^```$", re.MULTILINE | re.DOTALL)
_BRIDGE = "habana_frameworks.torch"
# Descriptions and imports of packages that the table mentions but that have no row of their own.
_OUTSIDE = {_BRIDGE: ("the vendor's package, or the simulator's face", ("simulator",))}

_WIDTH, _HEIGHT, _GAP, _BETWEEN = 152, 74, 12, 40
_THROUGH = 12  # width of a line that crosses a row
_LETTERS, _LINES = 24, 3

Lines = dict[str, tuple[str, ...]]


@dataclass
class Place:
    """The position of a part, or of a line where it crosses a row."""

    row: int
    width: int
    below: list[str] = field(default_factory=list)
    x: float = 0.0

    @property
    def y(self) -> int:
        """The upper edge."""
        return self.row * (_HEIGHT + _BETWEEN)

    @property
    def middle(self) -> float:
        """The horizontal center."""
        return self.x + self.width / 2


def parts(page: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the contents and imports of each part, from the page's table."""
    rows = {name: (contents, imports) for name, contents, imports in _ROW.findall(page)}
    names = [*rows, *_OUTSIDE]
    described = {}
    for name, (contents, imports) in rows.items():
        words = re.findall(r"[\w.]+", imports.replace("simulator.cards", "simulator"))
        described[name] = (contents, tuple(name for name in names if name in words))
    used = {name for _, imports in described.values() for name in imports}
    return described | {name: part for name, part in _OUTSIDE.items() if name in used}


def with_picture(page: str) -> str:
    """Return the page with the diagram instead of its text version."""
    html = f'```{{raw}} html\n<div class="architecture">{drawn(page)}</div>\n```'
    return _DRAWING.sub(lambda _: html, page, count=1)


def drawn(page: str) -> str:
    """Return the diagram as SVG, in the colors of the site's theme."""
    described = parts(page)
    lines = _needed({name: below for name, (_, below) in described.items()})
    places = _places(lines)
    width = max(place.x + place.width for place in places.values())
    height = max(place.y for place in places.values()) + _HEIGHT
    elements = [
        _line(places, upper, lower) for upper, place in places.items() for lower in place.below
    ] + [_box(name, contents, places[name]) for name, (contents, _) in described.items()]
    imports = "; ".join(
        f"{name} imports {', '.join(below)}" for name, below in lines.items() if below
    )
    return (
        f'<svg viewBox="-1 -1 {width + 2:.0f} {height + 2}" width="{width + 2:.0f}" role="img">'
        f"<title>The parts of hpu_magic, each above those that it imports</title>"
        f"<desc>{escape(imports)}.</desc>{''.join(elements)}</svg>"
    )


def _needed(imports: Lines) -> Lines:
    """Omit imports that are implied by another import."""

    def reached(name: str) -> set[str]:
        return {part for below in imports[name] for part in {below, *reached(below)}}

    return {
        name: tuple(part for part in below if not any(part in reached(other) for other in below))
        for name, below in imports.items()
    }


def _places(lines: Lines) -> dict[str, Place]:
    """Arrange the parts in rows, each above its imports and near the connected parts."""
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            heights[name] = max((height(below) + 1 for below in lines[name]), default=0)
        return heights[name]

    highest = max(map(height, lines))
    places = {name: Place(highest - heights[name], _WIDTH) for name in lines}
    for upper, below in lines.items():
        for lower in below:
            at = upper
            for row in range(places[upper].row + 1, places[lower].row):
                passing = f"{upper}>{lower}@{row}"
                places[passing] = Place(row, _THROUGH)
                places[at].below.append(passing)
                at = passing
            places[at].below.append(lower)
    rows = [[name for name in places if places[name].row == row] for row in range(highest + 1)]
    for _ in range(8):
        _ordered(rows, places, {name: place.below for name, place in places.items()})
        above: dict[str, list[str]] = {name: [] for name in places}
        for name, place in places.items():
            for lower in place.below:
                above[lower].append(name)
        _ordered(rows[::-1], places, above)
    return places


def _ordered(rows: list[list[str]], places: dict[str, Place], near: dict[str, list[str]]) -> None:
    """Order each row by the center of the connected parts, and center the row."""
    for row in rows:
        row.sort(key=lambda name: fmean([places[part].middle for part in near[name]] or [0.0]))
        total = sum(places[name].width + _GAP for name in row) - _GAP
        widest = max(sum(places[part].width + _GAP for part in other) - _GAP for other in rows)
        x = (widest - total) / 2
        for name in row:
            places[name].x = x
            x += places[name].width + _GAP


def _box(name: str, contents: str, place: Place) -> str:
    outside = " outside" if name in _OUTSIDE else ""
    called = name.partition(".")[0]
    plain = contents.replace("`", "").strip()
    about = textwrap.wrap(re.split(r"[:;]", plain)[0], _LETTERS, max_lines=_LINES, placeholder=" …")
    lines = "".join(
        f'<text x="{place.x + 10:.0f}" y="{place.y + 36 + 14 * at}">{escape(line)}</text>'
        for at, line in enumerate(about)
    )
    return (
        f'<g class="part{outside}"><title>{escape(plain)}</title>'
        f'<rect x="{place.x:.0f}" y="{place.y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<text class="name" x="{place.x + 10:.0f}" y="{place.y + 19}">{called}</text>'
        f"{lines}</g>"
    )


def _line(places: dict[str, Place], upper: str, lower: str) -> str:
    above, below = places[upper], places[lower]
    # A line that only crosses a row continues straight through it.
    start = above.y + _HEIGHT
    bend = (start + below.y) / 2
    through = f"M{above.middle:.0f} {above.y}V{start}" if above.width == _THROUGH else ""
    return (
        f'<path d="{through}M{above.middle:.0f} {start}C{above.middle:.0f} {bend:.0f} '
        f'{below.middle:.0f} {bend:.0f} {below.middle:.0f} {below.y}"/>'
    )
