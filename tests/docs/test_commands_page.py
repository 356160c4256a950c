"""docs/commands.md lists all commands."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEFINED = re.compile(r"@(?:line|cell|line_cell)_magic\n.*?def (\w+)\(", re.DOTALL)


def test_each_magic_is_listed_in_commands_md():
    sources = (ROOT / "hpu_magic" / "magics").glob("*.py")
    magics = {name for path in sources for name in DEFINED.findall(path.read_text())}
    page = (ROOT / "docs" / "commands.md").read_text()
    assert set(re.findall(r"^%{1,2}(hpu\w*)", page, re.MULTILINE)) == magics
