"""Print what a clone and its quickstart need to run, one a line, as pip reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib  # type: ignore[no-redef]

NAME = "hpu_magic"
FOR_A_CLONE = ("quickstart", "cli")  # the extras whose requirements `make` installs


def described() -> dict[str, Any]:
    """Return what pyproject.toml says."""
    return tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())


def of_extras(project: dict[str, Any], *extras: str) -> list[str]:
    """Return what extras require, those that they name themselves included."""
    optional = project["project"]["optional-dependencies"]
    found: list[str] = []
    for extra in extras:
        for line in optional[extra]:
            own = re.fullmatch(rf"{NAME}\[([\w,]+)\]", line)
            found += of_extras(project, *own[1].split(",")) if own else [line]
    return list(dict.fromkeys(found))


def main() -> None:
    """Print the project's own requirements, those of a clone's extras, and its build's."""
    project = described()
    print(
        *project["project"]["dependencies"],
        *of_extras(project, *FOR_A_CLONE),
        *project["build-system"]["requires"],
        "editables",  # what the build of a clone that stays editable asks for
        sep="\n",
    )


if __name__ == "__main__":
    main()
