"""Builds the site of the documentation into build/site: ``make docs``.

``--fast`` leaves the notebooks unexecuted, as the tests build it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from website.build import build

_ROOT = Path(__file__).parents[1]


def main() -> int:
    """Build it as the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="do not execute the notebooks")
    parser.add_argument(
        "--links", action="store_true", help="ask for the pages elsewhere, and build nothing"
    )
    parser.add_argument(
        "--into", type=Path, default=_ROOT / "build", help="folder of the site and its sources"
    )
    options = parser.parse_args()
    return build(_ROOT, options.into, executed=not options.fast, links=options.links)


if __name__ == "__main__":
    sys.exit(main())
