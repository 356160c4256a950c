"""Measure all figures, print them as a table and write build/bench.json.

``python -m bench FAMILY`` measures one family and prints a line of JSON for each figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from bench.harness import Figure

FAMILIES = (
    "training",
    "fit",
    "huggingface",
    "execution",
    "compile",
    "estimate",
    "dispatch",
    "card_time",
    "precision",
    "distributed",
    "parallel",
    "panel",
    "loading",
    "memory",
    "server",
    "frontend",
    "building",
    "start",
)
ROW = "{:<57} {:>10} {:<6} {:>9}  {}"


def row(figure: Figure) -> str:
    target = "" if figure.target is None else f"≤ {figure.target:.3g}"
    value = f"{figure.value:.4g}"
    return ROW.format(figure.name, value, figure.unit, target, "yes" if figure.holds else "NO")


def measured(family: str) -> Iterator[Figure]:
    """Measure one family in a new process.

    If all families ran in one process, memory that malloc retains after one family would affect the
    timings of the next.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench", family],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield Figure(**json.loads(line))
            else:
                print(line, end="")  # a message that explains why a figure is missing
        if process.wait():
            errors.seek(0)
            sys.exit(f"Failed to measure the figures of {family}:\n{errors.read()}")


def main(families: Sequence[str]) -> None:
    """Measure the families, print a table of their figures, and write the figures to a file."""
    print(ROW.format("figure", "value", "", "target", "holds"))
    records = []
    for family in families:
        for figure in measured(family):
            print(row(figure), flush=True)
            records.append({**vars(figure), "holds": figure.holds})
    result = Path("build/bench.json")
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    print(f"written to {result}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main(FAMILIES)
    else:
        # The engine must be loaded together with torch, which the benchmarks import.
        os.environ.setdefault("HPU_MAGIC_SIMULATOR", "1")
        for figure in import_module(f"bench.{sys.argv[1]}").figures():
            print(json.dumps(vars(figure)), flush=True)
