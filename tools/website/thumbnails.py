"""Thumbnail of a notebook: the image that a cell displays, or a drawing of its text."""

from __future__ import annotations

import base64
import re
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 480, 270
_SIZE = 19
_LINES = 10
_DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_COLORS = re.compile(r"\x1b\[[\d;]*m")


def thumbnail(notebook: Any, cell_id: str) -> tuple[str, bytes]:
    """Return the thumbnail of a notebook as a file suffix and file contents.

    The thumbnail shows the output of a cell, or its source if the notebook has no outputs.
    """
    cell = next((cell for cell in notebook.cells if cell.get("id") == cell_id), None)
    if cell is None:
        raise ValueError(f"The notebook has no cell {cell_id!r}, whose output is its thumbnail.")
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" in data:
            return ".png", base64.b64decode(data["image/png"])
        if "image/svg+xml" in data:
            return ".svg", _on_paper(data["image/svg+xml"])
        texts.append(output.get("text") or data.get("text/plain", ""))
    text = "\n".join(texts) or cell.source
    return ".svg", drawn(_COLORS.sub("", text))


def drawn(text: str) -> bytes:
    """Return the first lines of text as SVG."""
    lines = text.strip("\n").splitlines()[:_LINES]
    shown = "".join(
        f'<text x="18" y="{30 + at * 1.3 * _SIZE:.1f}" xml:space="preserve"'
        f"{_weight(at)}>{escape(line)}</text>"
        for at, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}"><rect width="100%" height="100%" fill="#f6f8fa"/>'
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{_SIZE}" '
        f'fill="#24292f">{shown}</g></svg>'
    ).encode()


def _weight(line: int) -> str:
    return ' font-weight="600"' if line == 0 else ""


def _on_paper(drawing: str) -> bytes:
    """Add a white background to a chart, because its colors require one."""
    head, mark, rest = drawing.partition(">")
    return f'{head}{mark}<rect width="100%" height="100%" fill="#fff"/>{rest}'.encode()
