"""Print the project's own dependencies, one a line, as pip reads them."""

from __future__ import annotations

from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib  # type: ignore[no-redef]

project = Path(__file__).parents[1] / "pyproject.toml"
print(*tomllib.loads(project.read_text())["project"]["dependencies"], sep="\n")
