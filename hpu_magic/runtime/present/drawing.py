"""Pieces of plain SVG, without script or fonts, that read on a light page and on a dark one."""

from __future__ import annotations

import math
import re
from html import escape, unescape

# Of middle lightness.
TEXT = "#7a7a7a"
GRID = "#9a9a9a"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def image(
    width: float, height: float, parts: list[str], title: str = "", description: str = ""
) -> str:
    """Return an SVG image of these pieces, which shrinks where there is less room.

    Parameters
    ----------
    width, height
        Pixels, where there is room.
    parts
        What is drawn.
    title, description
        What it shows, for who does not see it: a name and whole sentences.
    """
    role = ""
    if title:
        words = escape(f"{title}. {description}".strip())
        role = f' role="img" aria-label="{words}"'
        parts = [f"<title>{escape(title)}</title><desc>{escape(description)}</desc>", *parts]
    # Its own width is what a page scales it down from that shows it as an image.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="max-width:100%;height:auto" '
        f'font-family="{escape(FONT)}" font-size="11" fill="{TEXT}"{role}>{"".join(parts)}</svg>'
    )


def spoken(picture: str) -> str:
    """Return what an image says to who does not see it; empty where it was given nothing."""
    found = re.search(r'aria-label="([^"]*)"', picture)
    return unescape(found[1]) if found else ""


def round_numbers(low: float, high: float, count: int) -> list[float]:
    """Return round numbers from at or below ``low`` to at or above ``high``."""
    width = (high - low) or abs(high) or 1.0
    raw = width / count
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * index for index in range(first, max(last, first + 1) + 1)]


def text(
    x: float,
    y: float,
    words: str,
    anchor: str = "start",
    size: int = 11,
    colour: str = "",
    most: float = math.inf,
) -> str:
    """Return words that begin, end or have their middle at a place on their baseline.

    Words that would take more pixels than ``most`` are made narrower.
    """
    fill = f' fill="{colour}"' if colour else ""
    if 0.6 * size * len(words) > most:
        fill += f' textLength="{most:.0f}" lengthAdjust="spacingAndGlyphs"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{fill}>'
        f"{escape(words)}</text>"
    )


def rule(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    opacity: float,
    colour: str = GRID,
    dashes: str = "",
) -> str:
    """Return a line."""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-opacity="{opacity}"{dash}/>'
    )
