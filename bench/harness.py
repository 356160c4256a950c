"""Alternating time measurements of two functions, and figures.

Absolute times depend on the machine and its load. Therefore a figure compares a candidate with a
baseline that alternates with it, in the quarter of the rounds with the least disturbance.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

FEWEST_ROUNDS = 8


@dataclass(frozen=True)
class Figure:
    """A measured value, which holds if it is at most `target`, or if there is no target."""

    name: str
    value: float
    unit: str
    target: float | None

    @property
    def holds(self) -> bool:
        return self.target is None or self.value <= self.target


def seconds(run: Callable[[], object], clock: Callable[[], float] = perf_counter) -> float:
    start = clock()
    run()
    return clock() - start


def in_turn(
    baseline: Callable[[], object],
    candidate: Callable[[], object],
    rounds: int,
    longest: float = 60.0,
    clock: Callable[[], float] = perf_counter,
) -> list[tuple[float, float]]:
    """Return the seconds of baseline and candidate in each round; their order alternates.

    On a busy machine, the measurement ends after `longest` seconds. Functions that run in one
    thread and never wait can use `process_time`, which does not depend on other processes.
    """
    baseline()
    candidate()
    pairs: list[tuple[float, float]] = []
    end = perf_counter() + longest
    gc.collect()
    gc.disable()
    try:
        for round_number in range(rounds):
            if round_number % 2:
                after = seconds(candidate, clock)
                before = seconds(baseline, clock)
            else:
                before = seconds(baseline, clock)
                after = seconds(candidate, clock)
            pairs.append((before, after))
            if perf_counter() > end and len(pairs) >= FEWEST_ROUNDS:
                break
    finally:
        gc.enable()
    return pairs


def quiet_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the ratio of candidate to baseline, from the lower quartiles of both.

    Other processes lengthen some rounds, mainly long ones, but never shorten a round.
    """
    before, after = (statistics.quantiles(times, n=4)[0] for times in zip(*pairs, strict=True))
    return after / before


def fresh_process(code: str, **environ: str) -> str:
    """Run code in a new Python process and return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True
    )
    if finished.returncode:
        raise RuntimeError(finished.stderr)
    return finished.stdout
