"""Check that the tests named in docs/lightning.md exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tests_named_in_lightning_md_exist():
    table = (ROOT / "docs" / "lightning.md").read_text().partition("\n## Supported features")[2]
    named = re.findall(r"\| `([\w/]+\.py)(?:::(\w+))?` \|$", table, re.M)
    assert len(named) == len(re.findall(r"^\| ", table, re.M)) - 1  # all rows except the heading
    for file, test in named:
        path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "lightning" / file
        assert f"def {test}(" in path.read_text() if test else path.exists(), (file, test)
