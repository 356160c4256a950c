"""A picture of the memory at the peak and of the time of a step, each as one divided bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

from hpu_magic import units
from hpu_magic.runtime.present import bars, drawing

_WIDTH = 760
_BAR, _LABELS, _GAP = 22, 20, 8
_TITLE = 18
_LETTER = 6.2
# Legible on light and dark pages, and distinguishable with any type of color vision.
_COLORS = ("#3d85c6", "#d9822b", "#3f9e72", "#8e6fcf", "#c9534f", "#0b9e9e", "#8a8a8a")
_OTHERS = len(_COLORS) - 1


def picture(
    memory: Mapping[str, int],
    limit: int,
    needed: int,
    phases: Mapping[str, float] | None,
    unit: str = "step",
) -> str:
    """Return an SVG image.

    ``limit`` is the number of bytes that tensors can use on the card, and ``needed`` the number
    that the script needs if it is more. ``phases`` are the seconds of each phase of a ``unit``.
    """
    parts: list[str] = []
    used = sum(memory.values())
    title = f"memory of a card at the peak: {units.usage(used, limit)}"
    shown = max(limit, needed, used)
    top = _divided(parts, 0, title, memory, units.size, shown)
    _mark(parts, limit / shown, title)
    if phases:
        seconds = sum(phases.values())
        title = f"time of a {unit} (estimate): {units.duration(seconds)}"
        top = _divided(parts, top + _GAP, title, phases, units.duration, seconds)
    return drawing.image(_WIDTH, top + 4, parts, "Memory and time", title)


def _divided(
    parts: list[str],
    top: float,
    title: str,
    values: Mapping[str, float],
    write: Callable[[float], str],
    total: float,
) -> float:
    """Add a bar with a section for each value and a legend, and return the position below it."""
    parts.append(drawing.text(0, top + 12, title))
    top += _TITLE
    parts.append(_rectangle(0, top, _WIDTH, drawing.GRID, 0.2))
    shown = _largest(values)
    left = x = y = 0.0
    for (name, value), color in zip(shown.items(), _COLORS, strict=False):
        width = _WIDTH * value / total if total else 0.0
        label = f"{name}: {write(value)}"
        parts.append(_rectangle(left, top, width, color, 0.85, label))
        left += width
        needed = 20 + _LETTER * len(label) + 12
        if x and x + needed > _WIDTH:
            x, y = 0.0, y + _LABELS
        below = top + _BAR + 6 + y
        parts.append(_rectangle(x, below, 11, color, 0.85, height=11))
        parts.append(drawing.text(x + 16, below + 10, label))
        x += needed
    return top + _BAR + 6 + y + _LABELS


def _largest(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values in their order, with the sum of the smallest if there are many."""
    found = {name: value for name, value in values.items() if value}
    by_size = sorted(found, key=found.__getitem__, reverse=True)
    if len(found) > len(_COLORS):
        found["others"] = sum(found.pop(name) for name in by_size[_OTHERS:])
    return found


def _rectangle(
    left: float,
    top: float,
    width: float,
    color: str,
    opacity: float,
    title: str = "",
    height: float = _BAR,
) -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{color}" fill-opacity="{opacity}">{inner}</rect>'
    )


def _mark(parts: list[str], share: float, title: str) -> None:
    """Mark the memory that tensors can use, in a bar with this title."""
    x = _WIDTH * share - 1
    parts.append(drawing.rule(x, _TITLE - 3, x, _TITLE + _BAR + 3, 0.9, bars.MARK, "4 3"))
    label = "limit"
    if x - _LETTER * (len(label) + 2) > _LETTER * len(title):
        parts.append(drawing.text(x - 4, 12, label, "end", 10, bars.MARK))
    else:  # the title is too long
        parts.append(drawing.text(x + 5, _TITLE + 15, label, "start", 10, bars.MARK))
