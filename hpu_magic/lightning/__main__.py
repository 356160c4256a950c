"""Run a script written for lightning_habana: ``python -m hpu_magic.lightning train.py --args``."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from hpu_magic.lightning import as_lightning_habana
from hpu_magic.lightning.habana import VARIABLE


def main() -> None:
    """Provide ``lightning_habana`` in this process and its children, and run the script."""
    parser = argparse.ArgumentParser(
        prog="python -m hpu_magic.lightning",
        description="Run a script with `import lightning_habana` mapped to hpu_magic.lightning.",
    )
    parser.add_argument("script", help="the script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    if not Path(options.script).exists():
        parser.error(f"{options.script!r} does not exist")
    try:
        as_lightning_habana()
    except ValueError as refused:
        parser.error(str(refused))
    os.environ[VARIABLE] = "1"
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(Path(options.script).resolve().parent))
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
