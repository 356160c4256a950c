"""Print the requirements of a clone's quickstart, or of other extras, in pip's format.

Usage: requirements.py [--missing] [EXTRA...]. With --missing, print a sentence that lists the
packages that are not installed, if any.
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
    """Return the contents of pyproject.toml."""
    return tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())


def of_extras(project: dict[str, Any], *extras: str) -> list[str]:
    """Return the requirements of extras, including those of the extras that they include."""
    optional = project["project"]["optional-dependencies"]
    found: list[str] = []
    for extra in extras:
        for line in optional[extra]:
            own = re.fullmatch(rf"{NAME}\[([\w,]+)\]", line)
            found += of_extras(project, *own[1].split(",")) if own else [line]
    return list(dict.fromkeys(found))


def missing(lines: list[str]) -> list[str]:
    """Return the required packages that are not installed in this Python environment."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    required = [r for r in map(Requirement, lines) if not r.marker or r.marker.evaluate()]
    installed = {canonicalize_name(d.metadata["Name"]) for d in metadata.distributions()}
    return [r.name for r in required if canonicalize_name(r.name) not in installed]


def main() -> None:
    """Print the requirements of the project, of the extras that a clone needs, and of the build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    options = parser.parse_args()
    project = described()
    lines = of_extras(project, *options.extras)
    if options.missing:
        if absent := ", ".join(missing(lines)):
            print(f"Some notebooks also need {absent}: `make notebooks` installs missing packages.")
        return
    if options.extras:
        print(*lines, sep="\n")
        return
    print(
        *project["project"]["dependencies"],
        *of_extras(project, *FOR_A_CLONE),
        *project["build-system"]["requires"],
        "editables",  # required for an editable installation
        sep="\n",
    )


if __name__ == "__main__":
    main()
