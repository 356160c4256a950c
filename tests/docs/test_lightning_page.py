"""What docs/lightning.md says of tests is so."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_lightning_names_tests_that_exist() -> None:
    table = (ROOT / "docs" / "lightning.md").read_text().partition("\n## Supported features")[2]
    named = re.findall(r"\| `([\w/]+\.py)(?:::(\w+))?` \|$", table, re.M)
    assert len(named) == len(re.findall(r"^\| ", table, re.M)) - 1  # all rows but the heading
    assert len(named) > 30
    for file, test in named:
        path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "lightning" / file
        assert f"def {test}(" in path.read_text() if test else path.exists(), (file, test)
