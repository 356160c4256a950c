"""The command ``hpu-magic dry-run``."""

from __future__ import annotations

import argparse
import json
import sys

from hpu_magic.errors import HPUError

_CARDS = ("gaudi", "gaudi2", "gaudi3")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser, which sets the `run` option."""
    command = commands.add_parser(
        "dry-run",
        help="run a script on a card that computes nothing, to see whether it fits",
        description="Run a Python script unmodified on a simulated card that computes nothing: its "
        "tensors have sizes and device memory, but no values. Report the peak memory by kind of "
        "tensor and line, the line that runs out of memory, compiled graphs, CPU fallbacks and "
        "host reads. If the script reads a value that was not computed, it gets a stand-in. By "
        "default, the run ends when the optimizer steps repeat.",
        epilog="Examples: hpu-magic dry-run train.py --batch 64; "
        "hpu-magic dry-run --card gaudi3 --whole train.py; "
        "hpu-magic dry-run --value train.py:42=0.5 train.py. PT_HPU_LAZY_MODE and HPU_MAGIC_MEMORY "
        "apply to the script as usual.",
    )
    command.add_argument(
        "--card", choices=_CARDS, help="the generation of the card (HPU_MAGIC_CARD by default)"
    )
    command.add_argument(
        "--cards",
        type=int,
        default=1,
        metavar="N",
        help="number of ranks that the script sees, one per card (1 by default); only the first "
        "one runs, and represents all ranks",
    )
    command.add_argument(
        "--nodes", type=int, metavar="N", help="number of machines (eight cards each by default)"
    )
    command.add_argument(
        "--steps", type=int, metavar="N", help="end the run after this number of optimizer steps"
    )
    command.add_argument("--whole", action="store_true", help="run the script to its end")
    command.add_argument(
        "--time", action="store_true", help="estimate the time of a step on one card"
    )
    command.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="FILE:LINE=NUMBER",
        help="the value that a line of the script reads from the card; can be repeated",
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("script", help="path of the script")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command and return the script's exit status."""
    from hpu_magic.dry_runs.run import Request, dry_run

    request = Request(
        options.script,
        options.arguments,
        card=options.card,
        cards=options.cards,
        nodes=options.nodes,
        steps=options.steps,
        whole=options.whole,
        time=options.time,
        values=options.value,
    )
    try:
        # The script's own output must not be mixed with the JSON.
        result = dry_run(request, output=sys.stderr if options.json else None)
    except HPUError as error:
        print(f"hpu-magic: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(result.to_dict(), indent=2) if options.json else result)
    return result.status
