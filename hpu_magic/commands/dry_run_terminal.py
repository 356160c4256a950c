"""The command ``hpu-magic dry-run``."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpu_magic.commands import dry_runs
from hpu_magic.commands.declaration import CommandDeclaration
from hpu_magic.errors import HPUError

_OF_CELLS = ("code", "push")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
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
    declared = CommandDeclaration(dry_runs.dry_run, leave_out=_OF_CELLS)
    declared.add_to(command, skip=("script", "arguments"))
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--html", metavar="FILE", help="also write the result as an HTML page")
    command.add_argument("script", help="path of the script")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command and return the script's exit status."""
    # Imported here so that the other commands do not need cloudpickle.
    from hpu_magic.dry_runs.run import DryRunInterrupt, UnfinishedError

    own = ("run", "json", "html")
    passed = {name: value for name, value in vars(options).items() if name not in own}
    passed["value"] = [each for text in options.value or () for each in text.split(",")]
    try:
        if options.html is not None and not Path(options.html).absolute().parent.is_dir():
            raise HPUError(f"The folder of {options.html!r} does not exist; create it first.")
        # The script's own output must not be mixed with the JSON.
        shown = contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout)
        with _ended_by_signals(), shown:
            result = dry_runs.dry_run(**passed)
    except HPUError as error:
        print(f"hpu-magic: {error}", file=sys.stderr)
        return error.status if isinstance(error, UnfinishedError) else 1
    except DryRunInterrupt as interrupt:
        result = interrupt.result
    except KeyboardInterrupt:
        return 130
    if options.html is not None:
        Path(options.html).write_text(result.page(), encoding="utf-8")
    print(json.dumps(result.to_dict(), indent=2) if options.json else result)
    return result.status


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Exit in the usual way on a signal that ends processes, so that the script also ends."""
    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: Any) -> None:
    sys.exit(128 + number)
