"""The terminal command ``hpu-magic``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import hpu_magic
from hpu_magic import backend
from hpu_magic.commands import dry_run_terminal as dry_run
from hpu_magic.commands import terminal as estimate
from hpu_magic.errors import suggestion
from hpu_magic.health import command as doctor
from hpu_magic.monitor import hlsmi, top
from hpu_magic.plain_text import printable
from hpu_magic.simulator.cards.hl_smi import command as hl_smi

_LINES = "\n\t"
_GROUPS = {
    "Cards of this machine": {
        "top": "hpu-magic top --sort idle",
        "hl-smi": "hpu-magic hl-smi -Q index,memory.used -f csv",
    },
    "Before the card": {
        "estimate": "hpu-magic estimate models:make --inputs 8x512:int64",
        "dry-run": "hpu-magic dry-run --card gaudi3 train.py --batch 64",
    },
    "Installation": {
        "doctor": "hpu-magic doctor --json",
        "build": "hpu-magic build --dir /opt/hpu_magic/engine",
    },
}
"""Commands grouped by purpose, with an example of each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)
    status: int = options.run(options)
    return status


class _Parser(argparse.ArgumentParser):
    """A parser that lists all commands if none is passed, and suggests similar names for typos."""

    def error(self, message: str) -> NoReturn:
        if message.endswith("required: COMMAND"):
            self.exit(2, self.format_help())
        unknown = re.match(r"argument COMMAND: invalid choice: '(.*?)' \(choose", message)
        if unknown is None:
            super().error(message)
        names = [name for group in _GROUPS.values() for name in group]
        fix = suggestion(unknown[1], names) or f"use {', '.join(names)}."
        self.exit(2, f"hpu-magic: unknown command {unknown[1]!r}: {fix}\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser; each subcommand sets `run`."""
    parser = _Parser(
        prog="hpu-magic",
        usage="hpu-magic [-h] [--version] COMMAND ...",
        description="Work with real or simulated Gaudi cards from a terminal.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=hpu_magic.__version__)
    commands = parser.add_subparsers(
        prog="hpu-magic",
        metavar="COMMAND",
        required=True,
        help=argparse.SUPPRESS,
        parser_class=argparse.ArgumentParser,
    )
    top.add_parser(commands)
    doctor.add_parser(commands)
    estimate.add_parser(commands)
    dry_run.add_parser(commands)
    _add_build(commands)
    _add_hl_smi(commands)
    parser.epilog = _overview(commands)
    return parser


def _overview(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> str:
    """Return the commands by group, each with its purpose and an example."""
    purposes = {action.dest: action.help for action in commands._get_subactions()}
    lines = []
    for title, group in _GROUPS.items():
        lines.append(f"{title}:")
        for name, example in group.items():
            lines += [f"  {name:<10}{purposes[name]}", f"  {'':<10}  $ {example}"]
        lines.append("")
    return "\n".join([*lines, "hpu-magic COMMAND --help shows the options of a command."])


def _add_build(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    build = commands.add_parser(
        "build",
        help="compile the simulator's engine, for this user or for all users of the machine",
        description="Compile the simulator's engine for this Python and its torch, if necessary, "
        "and print its location.",
        epilog="Machines of the same kind can load it without a compiler. The simulator first "
        "searches HPU_MAGIC_SYSTEM_CACHE, which is share/hpu_magic/engine in the environment by "
        "default. Example, as root: hpu-magic build --dir /opt/hpu_magic/engine",
    )
    build.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="store the engine in this system cache; other users load only engines stored by root",
    )
    build.set_defaults(run=_build)


def _build(options: argparse.Namespace) -> int:
    # Imported here so that the other commands do not import torch.
    from hpu_magic.simulator import engine

    try:
        if options.dir is None:
            print(engine.compiled())
        else:
            stored = engine.install(options.dir)
            print(stored)
            if why := engine.distrust(stored):
                print(f"hpu-magic: the engine will not be loaded, because {why}.", file=sys.stderr)
            elif os.geteuid():
                print("hpu-magic: other users load only engines stored by root.", file=sys.stderr)
    except (engine.BuildError, OSError) as failed:
        print(f"hpu-magic: {printable(str(failed), keep=_LINES)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _add_hl_smi(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tool = commands.add_parser(
        "hl-smi",
        help="print the output of the vendor's hl-smi for the simulated cards",
        description="Print the output of the vendor's hl-smi for the simulated cards. Processes "
        "that use the simulator and their children find this command as hl-smi at the end of PATH.",
        epilog="Examples: hpu-magic hl-smi; hpu-magic hl-smi -q -d MEMORY; "
        "hpu-magic hl-smi -Q index,memory.used -f csv,noheader",
    )
    hl_smi.add_options(tool)
    tool.set_defaults(run=_hl_smi)


def _hl_smi(options: argparse.Namespace) -> int:
    real = hlsmi.program()
    if real is not None or not backend.is_simulated():
        why = f"is at {real}" if real else "is part of the vendor's package, which is installed"
        print(f"hpu-magic: The cards are not simulated: hl-smi {why}.", file=sys.stderr)
        return 1
    return hl_smi.run(options)


if __name__ == "__main__":
    sys.exit(main())
