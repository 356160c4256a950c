"""Builds the documentation site in build/site: ``make docs``.

With ``--fast``, the script neither executes the notebooks nor estimates the published measurements;
tests use this option.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from website.build import build

_ROOT = Path(__file__).parents[1]


def main() -> int:
    """Build the site with the options from the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="omit notebook outputs and estimates")
    parser.add_argument("--links", action="store_true", help="only check links to other sites")
    parser.add_argument(
        "--into", type=Path, default=_ROOT / "build", help="folder for the site and its sources"
    )
    options = parser.parse_args()
    return build(_ROOT, options.into, executed=not options.fast, links=options.links)


if __name__ == "__main__":
    sys.exit(main())
