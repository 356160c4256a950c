"""Compare dry runs with real runs of the same programs on the simulator.

Usage: python tools/dry_runs.py [--lazy] PROGRAM...

Prints the peak memory, compiled graphs and host reads of both runs, and fails if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from hpu_magic.dry_runs.run import Request, dry_run

_REAL = """\
import json, runpy, sys
record, script, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = script
try:
    runpy.run_path(script, run_name="__main__")
finally:
    from hpu_magic.simulator import engine
    counters = engine.load().counters()
    with open(record, "w") as file:
        json.dump([
            engine.load().memory_stats()["MaxInUse"],
            counters["graph_compilation"]["count"],
            counters["host_synchronization"]["count"],
        ], file)
"""


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


def compared(program: str, variables: Mapping[str, str] | None = None) -> Comparison:
    """Run a program on the simulator and dry, with additional environment variables.

    Raises
    ------
    RuntimeError
        One of the runs failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        changed = dict(variables or {}, HPU_MAGIC_CARDS_DIR=folder, HPU_MAGIC_SIMULATOR="1")
        record = os.path.join(folder, "figures.json")
        real = subprocess.run(
            [sys.executable, "-c", _REAL, record, program],
            env={**os.environ, **changed},
            stdout=subprocess.DEVNULL,
        )
        if real.returncode:
            raise RuntimeError(f"{program} failed on the simulator.")
        with open(record) as file:
            figures = Figures(*json.load(file))
    before = dict(os.environ)
    os.environ.update(variables or {})
    try:
        result = dry_run(Request(program, whole=True), output=subprocess.DEVNULL)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if result.status:
        raise RuntimeError(f"{program} failed in the dry run: {result.error}")
    reads = sum(line.count for line in result.host_reads)
    return Comparison(program, figures, Figures(result.peak, result.graphs, reads))


def main() -> int:
    """Compare the programs of the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lazy", action="store_true", help="run the programs in lazy mode")
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    options = parser.parse_args()
    differ = 0
    for program in options.programs:
        comparison = compared(program, {"PT_HPU_LAZY_MODE": str(int(options.lazy))})
        equal = comparison.real == comparison.dry
        differ += not equal
        print(f"{'equal' if equal else 'DIFFERENT'}  {program}")
        print(f"  simulator {comparison.real}\n  dry run   {comparison.dry}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
