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
    """Add the command's parser, which sets the `run` option."""
    doctor = commands.add_parser(
        "doctor",
        help="find problems with the installation, cards, host and Jupyter, and suggest fixes",
        description="Check installed packages, versions, driver, cards, memory, environment "
        "flags, caches, logs and Jupyter. Red findings are failures, amber findings are possible "
        "problems, and green findings are checks that passed. The command does not acquire a card "
        "or import torch. The exit status is 1 if any finding is red.",
        epilog="Examples: hpu-magic doctor; hpu-magic doctor --all; hpu-magic doctor --json",
    )
    doctor.add_argument("--all", action="store_true", help="also list the green findings")
    doctor.add_argument(
        "--json",
        action="store_true",
        help="print all findings as JSON that you can share, without names, folders or addresses",
    )
    doctor.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")  # folder names may not be valid UTF-8
    colours = out is not None and out.isatty() and not os.environ.get("NO_COLOR")
    try:
        diagnosis = examine(Machine.here(), everything=options.all)
        if options.json:
            output = repr(diagnosis.to_dict())
        else:
            output = diagnosis.text(colours=colours)
    except KeyboardInterrupt:
        return 130
    if out is not None and (problem := _write(output, out)):
        print(f"hpu-magic doctor: cannot write the findings: {problem}.", file=sys.stderr)
        return 2
    return 1 if diagnosis.state == "red" else 0


def _write(output: str, out: TextIO) -> str:
    """Write the output and return the error, if any; a closed pipe is not considered an error."""
    try:
        print(output, file=out, flush=True)
    except OSError as error:
        # Prevent Python's flush at exit from printing an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return ""
