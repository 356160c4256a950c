"""The command ``hpu-magic doctor``."""

from __future__ import annotations

import argparse
import json
import os
import sys

from .diagnosis import examine
from .machine import Machine


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser; what it yields has `run`."""
    doctor = commands.add_parser(
        "doctor",
        help="say what is wrong with installation, cards, host and Jupyter, and the mend",
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
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    status = 0
    try:
        diagnosis = examine(Machine.here(), everything=options.all)
        status = 1 if diagnosis.state == "red" else 0
        if options.json:
            print(json.dumps(diagnosis.as_record(), indent=2))
        else:
            print(diagnosis.text(colours=colours))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read has seen enough; Python's own flush at the end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
