"""Time two functions in alternation, and compare them.

Absolute times depend on the machine and its load. Therefore, each round times a baseline and a
candidate, and a figure is the ratio of the lower quartiles of their times, which are the least
affected by other processes.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

FEWEST_ROUNDS = 8


@dataclass(frozen=True)
class Figure:
    """A measured value, which passes if it is at most `target` or if there is no target."""

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
    """Return the times of the baseline and the candidate in each round, in alternating order.

    On a busy machine, the measurement stops early, after about `longest` seconds. For functions
    that run in one thread and never wait, `process_time` can be used as the clock, because it does
    not depend on other processes.
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
    """Return the candidate's time divided by the baseline's, computed from their lower quartiles.

    Other processes can only make a round longer, so the shortest rounds are the least affected.
    """
    before, after = (statistics.quantiles(times, n=4)[0] for times in zip(*pairs, strict=True))
    return after / before


class Companion:
    """A process that runs `serve`; each call to this object runs the served function once."""

    def __init__(self, code: str, **environ: str) -> None:
        self.spent = 0.0  # total time of all calls, in seconds
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "HPU_MAGIC_SIMULATOR": "1", **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._wait()

    def __call__(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The process {self.process.args} has ended.")
        self.spent += float(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(run: Callable[[], object], clock: Callable[[], float] = perf_counter) -> None:
    """Run a function once, then once per line of standard input, and print the time of each run."""
    answers, sys.stdout = sys.stdout, sys.stderr  # the function may print
    run()
    gc.freeze()  # speed up garbage collection by excluding existing objects
    print(0.0, file=answers, flush=True)
    for _ in sys.stdin:
        print(seconds(run, clock), file=answers, flush=True)


@contextmanager
def running(code: str, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Run code in another process, which is killed when the block ends.

    The block starts after the process has printed its first line.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


def fresh_process(code: str, **environ: str) -> str:
    """Run code in a new Python process and return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True
    )
    if finished.returncode:
        raise RuntimeError(finished.stderr)
    return finished.stdout
