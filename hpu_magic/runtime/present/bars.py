"""A horizontal bar chart in which each bar has a mark for a second value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from hpu_magic.runtime.present import drawing

_WIDTH = 760
_ROW = 18
_TITLE = 22
_FOOT = 22
_RIGHT = 14
_LONGEST = 34
_LETTER = 6.0
BAR = "#3d85c6"
MARK = "#d9822b"

Bar = tuple[str, float, float]
"""The name and length of a bar, followed by the position of its mark."""


def draw(bars: Sequence[Bar], bar: str, mark: str, unit: str) -> str:
    """Return an SVG image of the bars, from top to bottom.

    Lengths that are not finite are shown as text instead of a bar. ``bar`` and ``mark`` are labels
    in the legend, and ``unit`` is appended to each number on the axis.
    """
    names = [_shortened(name) for name, _, _ in bars]
    left = 16 + _LETTER * max((len(name) for name in names), default=0)
    finite = [value for _, length, at in bars for value in (length, at) if math.isfinite(value)]
    axis = drawing.round_numbers(0.0, max([*finite, 0.0]), 5)
    bottom = _TITLE + _ROW * len(bars)

    def x(value: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * value / axis[-1]

    parts = _legend(left, bar, mark)
    for tick in axis:
        parts.append(drawing.rule(x(tick), _TITLE, x(tick), bottom, 0.3))
        parts.append(drawing.text(x(tick), bottom + 14, f"{tick:g}{unit}", "middle", 10))
    for place, (each, name) in enumerate(zip(bars, names, strict=True)):
        top = _TITLE + _ROW * place
        parts.append(drawing.text(left - 8, top + 13, name, "end"))
        parts += _row(each, unit, left, top, x)
    return drawing.image(_WIDTH, bottom + _FOOT, parts)


def _row(bar: Bar, unit: str, left: float, top: float, x: Callable[[float], float]) -> list[str]:
    name, length, at = bar
    parts = [f"<g><title>{escape(name)}: {length:.4g}{unit}, {at:.4g}{unit}</title>"]
    if math.isfinite(length):
        parts.append(
            f'<rect x="{left:.1f}" y="{top + 3}" width="{x(length) - left:.1f}" '
            f'height="{_ROW - 6}" fill="{BAR}" fill-opacity="0.75"/>'
        )
    else:
        parts.append(drawing.text(left + 4, top + 13, f"{length}", colour=MARK))
    if math.isfinite(at):
        parts.append(
            f'<line x1="{x(at):.1f}" y1="{top + 1}" x2="{x(at):.1f}" y2="{top + _ROW - 1}" '
            f'stroke="{MARK}" stroke-width="2.5"/>'
        )
    return [*parts, "</g>"]


def _legend(left: float, bar: str, mark: str) -> list[str]:
    second = left + 24 + _LETTER * len(bar) + 16
    return [
        f'<rect x="{left:.1f}" y="4" width="12" height="9" fill="{BAR}" fill-opacity="0.75"/>',
        drawing.text(left + 18, 12, bar),
        f'<line x1="{second:.1f}" y1="2" x2="{second:.1f}" y2="15" stroke="{MARK}" '
        'stroke-width="2.5"/>',
        drawing.text(second + 8, 12, mark),
    ]


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
