"""Results or errors of a program's cases, for the test that started it."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MODE, _PLACE = sys.argv[1:3]
ON_CPU = MODE == "cpu"


def report(cases: Mapping[str, Callable[[], Any]], shown: bool = True):
    """Run all cases and, if ``shown``, write their results or errors to the file."""
    results = {}
    for name, case in cases.items():
        try:
            results[name] = case()
        except (RuntimeError, ValueError, AssertionError) as refusal:
            results[name] = {"refused": f"{type(refusal).__name__}: {refusal}"}
    if shown:
        Path(_PLACE).write_text(json.dumps(results), encoding="utf-8")


def count_replays() -> Callable[[], int]:
    """Start counting replays of HPU Graphs; return a function that returns the count."""
    from habana_frameworks.torch.hpu import HPUGraph

    replay, count = HPUGraph.replay, 0

    def counted(self, *arguments, **options):
        nonlocal count
        count += 1
        return replay(self, *arguments, **options)

    HPUGraph.replay = counted
    return lambda: count
