"""Print what a clone and its quickstart need to run, one a line, as pip reads them."""

from __future__ import annotations

from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib  # type: ignore[no-redef]

project = Path(__file__).parents[1] / "pyproject.toml"
described = tomllib.loads(project.read_text())
print(
    *described["project"]["dependencies"],
    *described["project"]["optional-dependencies"]["quickstart"],
    *described["build-system"]["requires"],
    "editables",  # what the build of a clone that stays editable asks for
    sep="\n",
)
