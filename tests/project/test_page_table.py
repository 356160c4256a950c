"""Test tables on pages, whose rows are replaced by tools."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from page_table import PageTable


def test_rows_are_replaced_in_the_order_of_the_names(tmp_path):
    path = tmp_path / "page.md"
    short = PageTable(path, ("feature", "result"), ["a", "b", "c"])
    wide = PageTable(path, ("model", "result", "time"), ["d"])
    path.write_text(f"Before\n\n{short.header}\nBetween\n\n{wide.header}\nAfter\n")
    for cells in (("b", "old"), ("a", "x | y"), ("b", "new\nline")):
        short.update(cells)
    wide.update(("d", "x", "y"))
    assert (short.listed(), wide.listed()) == (["a", "b"], ["d"])
    assert path.read_text() == (
        "Before\n\n| feature | result |\n|---|---|\n| a | x / y |\n| b | new line |\n\nBetween\n\n"
        "| model | result | time |\n|---|---|---|\n| d | x | y |\n\nAfter\n"
    )
