"""Plain SVG elements without scripts or fonts that are legible on light and dark pages."""

from __future__ import annotations

import math
import re
from html import escape, unescape

# Colors of medium lightness, which are legible on both white and black.
TEXT = "#7a7a7a"
GRID = "#9a9a9a"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def image(
    width: float, height: float, parts: list[str], title: str = "", description: str = ""
) -> str:
    """Return an SVG image of the given size in pixels, which shrinks to fit a narrow page.

    ``title`` and ``description`` are for screen readers.
    """
    role = ""
    if title:
        words = escape(f"{title}. {description}".strip())
        role = f' role="img" aria-label="{words}"'
        parts = [f"<title>{escape(title)}</title><desc>{escape(description)}</desc>", *parts]
    # width and height are the natural size if a page displays the SVG in an <img> element.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="max-width:100%;height:auto" '
        f'font-family="{escape(FONT)}" font-size="11" fill="{TEXT}"{role}>{"".join(parts)}</svg>'
    )


def spoken(picture: str) -> str:
    """Return an image's text for screen readers, or an empty string if it has none."""
    label = re.search(r'aria-label="([^"]*)"', picture)
    return unescape(label[1]) if label else ""


def round_numbers(low: float, high: float, count: int) -> list[float]:
    """Return evenly spaced round numbers that cover the range from ``low`` to ``high``."""
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
    """Return a text element whose start, middle or end (``anchor``) is at (x, y) on the baseline.

    If the text is wider than ``most`` pixels, its letters are condensed.
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
    """Return a straight line element."""
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-opacity="{opacity}"{dash}/>'
    )
