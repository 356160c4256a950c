"""The tables of results on the documentation page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serving_table.features import FEATURES, MODELS, WAYS

PAGE = Path(__file__).parents[2] / "docs" / "vllm.md"
HEADERS = {
    ("feature", "options", "result"): [each.name for each in FEATURES],
    ("model", *WAYS): [*MODELS],
}
"""Columns of each table, mapped to the first cells of its rows."""


def update(cells: Sequence[str], page: Path = PAGE) -> None:
    """Write a row into the table that has its first cell, in the table's order."""
    [columns] = [each for each, names in HEADERS.items() if cells[0] in names]
    before, _, after = page.read_text().partition(header(columns))
    rows, rest = _rows(after)
    rows[cells[0]] = f"| {' | '.join(' '.join(c.replace('|', '/').split()) for c in cells)} |\n"
    ordered = "".join(rows[name] for name in HEADERS[columns] if name in rows)
    page.write_text(f"{before}{header(columns)}{ordered}{rest}")


def listed(columns: tuple[str, ...], page: Path = PAGE) -> list[str]:
    """Return the first cells of a table's rows."""
    return [*_rows(page.read_text().partition(header(columns))[2])[0]]


def header(columns: tuple[str, ...]) -> str:
    """Return the first two lines of a table."""
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"


def _rows(text: str) -> tuple[dict[str, str], str]:
    """Return the rows at the start of a text by their first cell, and the rest of the text."""
    rows: dict[str, str] = {}
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("| "):
        line = lines.pop(0)
        rows[line.split("|")[1].strip()] = line
    return rows, "".join(lines)
