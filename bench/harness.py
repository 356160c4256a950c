"""Timing of two things in turn, and what a figure is.

Absolute times differ between machines and between minutes. A figure therefore
compares a candidate with a baseline that ran right beside it, round by round,
in the quarter of the rounds that nothing disturbed.
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
    """One measured value; it holds when it is at most `target` (None: no target)."""

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
    """Seconds of (baseline, candidate) in each round; who goes first alternates.

    On a machine that is busy otherwise, rounds end early after `longest` seconds. What runs in
    one thread and waits for nothing can be timed by `process_time`, which others do not lengthen.
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
    """Candidate by baseline, each in its quiet rounds: the lower quartiles of both.

    What else runs on the machine lengthens some rounds of either, and the longer ones more
    often; it shortens none.
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
