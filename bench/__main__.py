"""Measure every figure, print them as a table and write build/bench.json."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path

from .harness import Figure

FAMILIES = (
    "training",
    "execution",
    "compile",
    "dispatch",
    "panel",
    "loading",
    "memory",
    "server",
    "frontend",
)
ROW = "{:<44} {:>10} {:<6} {:>9}  {}"


def row(figure: Figure) -> str:
    target = "" if figure.target is None else f"≤ {figure.target:.3g}"
    value = f"{figure.value:.4g}"
    return ROW.format(figure.name, value, figure.unit, target, "yes" if figure.holds else "NO")


def main() -> None:
    """Run all families of figures; each compares two things within this one run."""
    # The engine must come in with torch, which the families import.
    os.environ.setdefault("HPU_MAGIC_SIMULATOR", "1")
    print(ROW.format("figure", "value", "", "target", "holds"))
    records = []
    for family in FAMILIES:
        for figure in import_module(f"bench.{family}").figures():
            print(row(figure), flush=True)
            records.append({**vars(figure), "holds": figure.holds})
    result = Path("build/bench.json")
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    print(f"written to {result}")


if __name__ == "__main__":
    main()
