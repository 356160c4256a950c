"""Compare dry runs with real runs of the same programs on the simulator.

Usage: python tools/dry_runs.py [--lazy] [--cards N] [PROGRAM...]

Prints the peak memory, compiled graphs and host reads of both runs, and fails if they differ.
Without a program, it compares all programs of the tests and of some packages, in both modes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run

_REAL = """\
import json, os, runpy, sys
record, script = sys.argv[1:3]
sys.argv[:] = sys.argv[2:]
try:
    runpy.run_path(script, run_name="__main__")
finally:
    from hpu_magic.simulator import engine
    counters = engine.load().counters()
    figures = [
        engine.load().memory_stats()["MaxInUse"],
        counters["graph_compilation"]["count"],
        counters["host_synchronization"]["count"],
    ]
    if os.environ.get("RANK", "0") == "0":
        with open(record, "w") as file:
            json.dump(figures, file)
"""


OF_PACKAGES = (
    "accelerate/test_utils/scripts/test_ops.py",
    "accelerate/test_utils/scripts/test_sync.py",
)
"""Programs that are installed with packages."""
ONE_MODE = {"compiled": "eager", "graph": "lazy"}
"""Programs that need a mode."""
DIFFERENT = {"experts": "nonzero: which tokens an expert gets depends on the weights"}
"""Programs whose figures differ, and the operator whose size depends on data."""


@dataclass(frozen=True)
class Figures:
    """Figures of one run; memory in bytes."""

    peak: int
    graphs: int
    host_reads: int


@dataclass(frozen=True)
class Comparison:
    """The figures of both runs of a program."""

    program: str
    real: Figures
    dry: Figures


def compared(
    program: str, variables: Mapping[str, str] | None = None, cards: int = 1
) -> Comparison:
    """Run a program on the simulator and in a dry run, with additional environment variables.

    Raises
    ------
    RuntimeError
        One of the runs failed.
    """
    variables = variables or {}
    real = _real_run(program, variables, cards)
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        request = Request(program, whole=True, cards=cards)
        result = dry_run(request, output=subprocess.DEVNULL)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if result.status:
        raise RuntimeError(f"{program} failed in the dry run: {result.error}")
    reads = sum(line.count for line in result.host_reads)
    return Comparison(program, real, Figures(result.peak, result.graphs, reads))


def _real_run(program: str, variables: Mapping[str, str], cards: int) -> Figures:
    """Run a program on simulated cards that compute, and return the figures of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        wrapper, record = os.path.join(folder, "real.py"), os.path.join(folder, "figures.json")
        with open(wrapper, "w") as file:
            file.write(_REAL)
        command = [sys.executable]
        if cards > 1:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cards}"]
        changed = {**variables, "HPU_MAGIC_CARDS_DIR": folder, "HPU_MAGIC_SIMULATOR": "1"}
        done = subprocess.run(
            [*command, wrapper, record, program],
            env={**os.environ, **changed},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise RuntimeError(f"{program} failed on the simulator: {last}")
        with open(record) as file:
            return Figures(*json.load(file))


def all_programs() -> list[tuple[str, bool, int]]:
    """Return all programs, whether each runs in lazy mode, and the number of its cards."""
    folder = Path(__file__).parents[1] / "tests" / "dry_runs"
    libraries = Path(sysconfig.get_paths()["purelib"])
    of_one_card = [*folder.glob("*programs/*.py"), *(libraries / name for name in OF_PACKAGES)]
    both = [
        (str(path), mode == "lazy", 1)
        for path in sorted(of_one_card)
        for mode in ("eager", "lazy")
        if ONE_MODE.get(path.stem, mode) == mode
    ]
    return [*both, *((str(path), False, 2) for path in folder.glob("programs_of_ranks/*.py"))]


def main() -> int:
    """Compare the programs of the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lazy", action="store_true", help="run the programs in lazy mode")
    parser.add_argument("--cards", type=int, default=1, help="number of ranks")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    chosen = [(program, options.lazy, options.cards) for program in options.programs]
    unexpected = 0
    for program, lazy, cards in chosen or all_programs():
        unexpected += not _is_as_expected(program, lazy, cards)
    return int(unexpected > 0)


def _is_as_expected(program: str, lazy: bool, cards: int) -> bool:
    """Run a program twice, print the figures, and return whether they are as expected."""
    name = f"{Path(program).stem}, {'lazy' if lazy else 'eager'}, {cards} cards"
    try:
        comparison = compared(program, {"PT_HPU_LAZY_MODE": str(int(lazy))}, cards)
    except RuntimeError as error:
        print(f"FAILED     {name}: {error}", flush=True)
        return False
    equal = comparison.real == comparison.dry
    reason = DIFFERENT.get(Path(program).stem, "")
    print(f"{'equal' if equal else 'DIFFERENT'}  {name}: {comparison.real} {reason}", flush=True)
    if not equal:
        print(f"           dry run: {comparison.dry}", flush=True)
    return equal or bool(reason)


if __name__ == "__main__":
    sys.exit(main())
