"""Runs a script on simulated cards: ``python -m hpu_magic.simulator train.py --args``."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from hpu_magic.simulator.activation import SWITCH, activate


def main() -> None:
    """Turn on the simulator for this process and its children, and run the script."""
    parser = argparse.ArgumentParser(
        prog="python -m hpu_magic.simulator",
        description="Run a Python script on simulated Gaudi cards.",
        epilog="Environment variables: HPU_MAGIC_CARD=gaudi|gaudi2|gaudi3, "
        "HPU_MAGIC_CARDS=1..8, HPU_MAGIC_MEMORY (for example 512MiB).",
    )
    parser.add_argument("-m", action="store_true", dest="module", help="SCRIPT is a module name")
    parser.add_argument("script", help="script to run, or module name with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    options = parser.parse_args()
    if not options.module and not Path(options.script).exists():
        parser.error(f"file {options.script!r} does not exist")
    try:
        activate()
    except (RuntimeError, ValueError) as refused:
        parser.error(str(refused))
    os.environ[SWITCH] = "1"
    sys.argv = [options.script, *options.arguments]
    if options.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(options.script).resolve().parent))
        runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
