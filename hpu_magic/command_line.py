"""The command ``hpu-magic``: the machine's cards in a terminal, and the engine for its users."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import hpu_magic
from hpu_magic import backend
from hpu_magic.doctor import command as doctor
from hpu_magic.monitor import hlsmi, top
from hpu_magic.simulator.cards.hl_smi import command as hl_smi


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)
    status: int = options.run(options)
    return status


def parser() -> argparse.ArgumentParser:
    """Return what reads the command's line; of each subcommand, `run` does it."""
    parser = argparse.ArgumentParser(
        prog="hpu-magic",
        description="Gaudi cards of this machine, real or simulated, in a terminal.",
    )
    parser.add_argument("--version", action="version", version=hpu_magic.__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    top.add_parser(commands)
    doctor.add_parser(commands)
    _add_build(commands)
    _add_hl_smi(commands)
    return parser


def _add_build(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    build = commands.add_parser(
        "build",
        help="compile the simulated device, for this user or for all of the machine",
        description="Compile the simulated device for this Python and its torch, unless that has "
        "been done, and print where it lies.",
        epilog="Machines of the same kind load it without a compiler. Python looks first into "
        "HPU_MAGIC_SYSTEM_CACHE, by default share/hpu_magic/engine in the environment's folder. "
        "Example, as root: hpu-magic build --into /opt/hpu_magic/engine",
    )
    build.add_argument(
        "--into",
        type=Path,
        metavar="DIR",
        help="store it in this system cache; what root stores there, all users load",
    )
    build.set_defaults(run=_build)


def _build(options: argparse.Namespace) -> int:
    # Here, because `top` answers without torch.
    from hpu_magic.simulator import engine

    try:
        if options.into is None:
            print(engine.compiled())
        else:
            stored = engine.install(options.into)
            print(stored)
            if why := engine.distrust(stored):
                print(f"hpu-magic: it will not be loaded, since {why}.", file=sys.stderr)
            elif os.geteuid():
                print("hpu-magic: other users load only what root has stored.", file=sys.stderr)
    except (engine.BuildError, OSError) as failed:
        print(f"hpu-magic: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _add_hl_smi(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tool = commands.add_parser(
        "hl-smi",
        help="answer as the vendor's hl-smi, for the simulated cards",
        description="Answer as the vendor's hl-smi, for the simulated cards. Processes with the "
        "simulator, and what they start, find it as hl-smi behind all other programs.",
        epilog="Examples: hpu-magic hl-smi; hpu-magic hl-smi -q -d MEMORY; "
        "hpu-magic hl-smi -Q index,memory.used -f csv,noheader",
    )
    hl_smi.add_options(tool)
    tool.set_defaults(run=_hl_smi)


def _hl_smi(options: argparse.Namespace) -> int:
    real = hlsmi.program()
    if real is not None or not backend.is_simulated():
        why = f"is at {real}" if real else "belongs to the vendor's package, which is installed"
        print(f"hpu-magic: The cards here are not simulated: hl-smi {why}.", file=sys.stderr)
        return 1
    return hl_smi.run(options)


if __name__ == "__main__":
    sys.exit(main())
