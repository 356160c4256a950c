"""The command ``hpu-magic doctor``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from typing import TextIO

from hpu_magic.health.diagnosis import examine
from hpu_magic.health.machine import Machine


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser; what it yields has `run`."""
    doctor = commands.add_parser(
        "doctor",
        help="say what is wrong with installation, cards, host and Jupyter, and the fix",
        description="Look at what is installed, versions, driver, cards, memory, environment "
        "flags, caches, logs and Jupyter: red fails, amber hurts or may, green is well. No card is "
        "acquired and torch is not loaded. The exit status is 1 where something is red.",
        epilog="Examples: hpu-magic doctor; hpu-magic doctor --all; hpu-magic doctor --json",
    )
    add_options(doctor)
    doctor.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--all", action="store_true", help="show what is green one by one too")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print all findings as JSON to show to others: without names, folders and addresses",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")  # names of folders that a terminal cannot show
    colours = out is not None and out.isatty() and not os.environ.get("NO_COLOR")
    try:
        diagnosis = examine(Machine.here(), everything=options.all)
        if options.json:
            said = repr(diagnosis.as_record())
        else:
            said = diagnosis.text(colours=colours)
    except KeyboardInterrupt:
        return 130
    if out is not None and (trouble := _written(said, out)):
        print(f"hpu-magic doctor: what was found cannot be written: {trouble}.", file=sys.stderr)
        return 2
    return 1 if diagnosis.state == "red" else 0


def _written(said: str, out: TextIO) -> str:
    """Write what was found, and say what hinders; who has closed a pipe has seen enough."""
    try:
        print(said, file=out, flush=True)
    except OSError as error:
        # Python's own flush at the end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return ""
