"""A notebook's picture: what one of its cells draws, or else what it says, drawn as text."""

from __future__ import annotations

import base64
import re
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 480, 270
_SIZE = 19
_LINES = 10
_DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def thumbnail(notebook: Any, cell_id: str) -> tuple[str, bytes]:
    """Return the picture of a notebook, as a file's suffix and contents.

    Parameters
    ----------
    notebook : NotebookNode
        With outputs, or without, where the cell's source is drawn.
    cell_id : str
        The cell whose output makes the picture.

    Raises
    ------
    ValueError
        The notebook has no such cell.
    """
    found = [cell for cell in notebook.cells if cell.get("id") == cell_id]
    if not found:
        raise ValueError(f"The notebook has no cell {cell_id!r} to make a picture of.")
    said = []
    for output in found[0].outputs:
        data = output.get("data", {})
        if "image/png" in data:
            return ".png", base64.b64decode(data["image/png"])
        if "image/svg+xml" in data:
            return ".svg", _on_paper(data["image/svg+xml"])
        said.append(output.get("text") or data.get("text/plain", ""))
    text = "\n".join(said) or found[0].source
    return ".svg", drawn(_COLOURS.sub("", text))


def drawn(text: str) -> bytes:
    """Return the first lines of a text as a picture of a page."""
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
    """Give a chart, which a notebook shows on its own background, one that suits its colours."""
    head, mark, rest = drawing.partition(">")
    return f'{head}{mark}<rect width="100%" height="100%" fill="#fff"/>{rest}'.encode()
