"""The tables of results on the documentation page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from page_table import PageTable

from serving_table.features import FEATURES, MODELS, WAYS

PAGE = Path(__file__).parents[2] / "docs" / "vllm.md"
TABLES = (
    PageTable(PAGE, ("feature", "options", "result"), [each.name for each in FEATURES]),
    PageTable(PAGE, ("model", *WAYS), [*MODELS]),
)


def update(cells: Sequence[str]) -> None:
    """Replace the row of a table that has the same first cell."""
    [table] = [each for each in TABLES if cells[0] in each.names]
    table.update(cells)
