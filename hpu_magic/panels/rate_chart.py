"""A chart of a rate over time, such as a server's tokens per second."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.runtime.present import drawing

_WIDTH, _HEIGHT, _TOP, _FOOT, _RIGHT = 520, 120, 22, 18, 12
_INTERVALS = 2  # of the vertical axis

_TEXT = "currentColor"  # the text color of the page

Point = tuple[float, float]
"""A time in seconds and a value; NaN interrupts the line."""


def draw(title: str, points: Sequence[Point], span: float) -> str:
    """Return an SVG image of the last `span` seconds before the newest point."""
    now = points[-1][0] if points else 0.0
    shown = [(time, value) for time, value in points if time >= now - span]
    finite = [value for _, value in shown if math.isfinite(value)]
    ticks = drawing.round_numbers(0.0, max([*finite, 1.0]), _INTERVALS)
    bottom = _HEIGHT - _FOOT
    room = _WIDTH - palette.LEFT - _RIGHT

    def at(time: float, value: float) -> str:
        x = palette.LEFT + room * (1 - (now - time) / span)
        return f"{x:.1f} {bottom - (bottom - _TOP) * value / ticks[-1]:.1f}"

    parts = [drawing.text(palette.LEFT, 13, title, size=12, colour=_TEXT)]
    for tick in ticks:
        y = bottom - (bottom - _TOP) * tick / ticks[-1]
        parts.append(drawing.rule(palette.LEFT, y, _WIDTH - _RIGHT, y, 0.35))
        parts.append(drawing.text(palette.LEFT - 8, y + 4, units.value(tick), "end", colour=_TEXT))
    path, pen = [], "M"
    for time, value in shown:
        if math.isfinite(value):
            path.append(pen + at(time, value))
        pen = "L" if math.isfinite(value) else "M"
    parts.append(
        f'<path d="{"".join(path)}" fill="none" stroke="{palette.SPEED}" stroke-width="1.6"/>'
    )
    parts.append(drawing.text(palette.LEFT, _HEIGHT - 4, f"{span:.0f} s ago", colour=_TEXT))
    parts.append(drawing.text(_WIDTH - _RIGHT, _HEIGHT - 4, "now", "end", colour=_TEXT))
    newest = units.value(finite[-1]) if finite else "unknown"
    return drawing.image(_WIDTH, _HEIGHT, parts, title, f"newest value: {newest}")
