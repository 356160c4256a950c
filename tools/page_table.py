"""Replace the rows of a table on a documentation page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PageTable:
    """A table on a page; `names` are the first cells of its rows, in order."""

    page: Path
    columns: tuple[str, ...]
    names: Sequence[str]

    @property
    def header(self) -> str:
        """The first two lines of the table."""
        return f"| {' | '.join(self.columns)} |\n|{'---|' * len(self.columns)}\n"

    def update(self, cells: Sequence[str]) -> None:
        """Write a row, which replaces the row with the same first cell."""
        before, _, after = self.page.read_text().partition(self.header)
        rows, rest = _rows(after)
        row = " | ".join(" ".join(cell.replace("|", "/").split()) for cell in cells)
        rows[cells[0]] = f"| {row} |\n"
        ordered = "".join(rows[name] for name in self.names if name in rows)
        self.page.write_text(f"{before}{self.header}{ordered}{rest}")

    def listed(self) -> list[str]:
        """Return the first cells of the rows on the page."""
        return [*_rows(self.page.read_text().partition(self.header)[2])[0]]


def _rows(text: str) -> tuple[dict[str, str], str]:
    """Return the rows at the start of a text by their first cell, and the rest of the text."""
    rows: dict[str, str] = {}
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("| "):
        line = lines.pop(0)
        rows[line.split("|")[1].strip()] = line
    return rows, "".join(lines)
