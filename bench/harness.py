"""Timing of two things in turn, and what a figure is.

Absolute times differ between machines and between minutes. A figure therefore
compares a candidate with a baseline that ran right beside it, round by round,
and is the median over many rounds.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
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


def seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def in_turn(
    baseline: Callable[[], object],
    candidate: Callable[[], object],
    rounds: int,
    longest: float = 60.0,
) -> list[tuple[float, float]]:
    """Seconds of (baseline, candidate) in each round; who goes first alternates.

    On a machine that is busy otherwise, rounds end early after `longest` seconds.
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
                after = seconds(candidate)
                before = seconds(baseline)
            else:
                before = seconds(baseline)
                after = seconds(candidate)
            pairs.append((before, after))
            if perf_counter() > end and len(pairs) >= FEWEST_ROUNDS:
                break
    finally:
        gc.enable()
    return pairs


def median_ratio(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(candidate / baseline for baseline, candidate in pairs)


def median_difference(pairs: list[tuple[float, float]]) -> float:
    """Seconds by which the candidate takes longer."""
    return statistics.median(candidate - baseline for baseline, candidate in pairs)


def fresh_process(code: str, **environ: str) -> str:
    """Run code in a new Python process and return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True
    )
    if finished.returncode:
        raise RuntimeError(finished.stderr)
    return finished.stdout
