"""Print what a clone needs to run its quickstart, or other extras, as lines that pip reads.

Usage: requirements.py [--missing] [EXTRA...]. With --missing, one sentence names those that are not
installed, if any, and how to install them.
"""

from __future__ import annotations

import argparse
import re
from importlib import metadata
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


def missing(lines: list[str]) -> list[str]:
    """Return the names of the packages that are required in this Python and not installed."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    required = [one for one in map(Requirement, lines) if not one.marker or one.marker.evaluate()]
    installed = {canonicalize_name(one.metadata["Name"]) for one in metadata.distributions()}
    return [one.name for one in required if canonicalize_name(one.name) not in installed]


def main() -> None:
    """Print the project's own requirements, those of a clone's extras, and its build's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    options = parser.parse_args()
    project = described()
    lines = of_extras(project, *options.extras)
    if options.missing:
        if absent := ", ".join(missing(lines)):
            print(f"Some notebooks also need {absent}: `make notebooks` installs what is missing.")
        return
    if options.extras:
        print(*lines, sep="\n")
        return
    print(
        *project["project"]["dependencies"],
        *of_extras(project, *FOR_A_CLONE),
        *project["build-system"]["requires"],
        "editables",  # what the build of a clone that stays editable asks for
        sep="\n",
    )


if __name__ == "__main__":
    main()
