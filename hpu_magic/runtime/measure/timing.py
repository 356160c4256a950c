"""Timing that waits for the device and reports the warm-up runs separately."""

from __future__ import annotations

import statistics
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.card_time import CardTime, CardWatch
from hpu_magic.runtime.present.report import Report, Row

# Approximate duration of one repeat in seconds if -n is not passed.
_REPEAT_TIME = 0.2
_MOST_RUNS = 100_000
# A second or third run that is slower than the steady state by this factor counts as a warm-up run.
_WARMING = 1.5
_WARM_UP_RUNS = 3


@dataclass(repr=False)
class TimeReport(Report):
    """Times in seconds, each measured between two synchronizations."""

    first: list[float] = field(default_factory=list)
    """Times of the first runs, which compile graphs, allocate memory and fill caches."""
    steady: list[float] = field(default_factory=list)
    """Time per run in seconds, for each repeat in the steady state."""
    runs: int = 1  #: number of runs per repeat
    card: list[float] = field(default_factory=list)
    """Estimated time per run on a card in seconds, for each repeat; empty if the clock of the
    simulated card is off."""
    band: tuple[float, float] = (1.0, 1.0)
    """Range in which a measurement on a card is expected, in multiples of the times in `card`."""

    @property
    def mean(self) -> float:
        """Time per run in seconds in the steady state, averaged over the repeats."""
        return statistics.fmean(self.steady)

    @property
    def best(self) -> float:
        """Time per run in seconds in the fastest repeat."""
        return min(self.steady)

    @property
    def deviation(self) -> float:
        """Standard deviation of the time per run across repeats, in seconds."""
        return statistics.pstdev(self.steady)

    def title(self) -> str:
        """Return the headline."""
        where = device.label() if device.taken() else "the cpu: no hpu work was timed"
        return f"{units.duration(self.mean)} per run on {where}"

    def rows(self) -> Sequence[Row]:
        """Return the times of the first runs and of the steady state."""
        spread = f"± {units.duration(self.deviation)}, best {units.duration(self.best)}"
        repeats = f"{len(self.steady)} x {self.runs:,} runs"
        first = " + ".join(units.duration(seconds) for seconds in self.first)
        label = "first run" if len(self.first) == 1 else f"first {len(self.first)} runs"
        rows: list[Row] = [
            (label, f"{first}, including compilation"),
            ("steady state", f"{units.duration(self.mean)} {spread} ({repeats})"),
            ("rate", units.rate(1 / self.mean if self.mean else 0.0, "runs")),
        ]
        if self.card:
            rows.append(("card time", CardTime(statistics.fmean(self.card), self.band).text("run")))
        return rows


class Stopwatch:
    """Times code and decides how often it runs; use it as in ``while watch.again(): ...``.

    Each repeat consists of ``runs`` runs; 0 chooses a number based on the duration of one run.
    ``keep`` is called with the report. Raises `HPUError` if a number is out of range.
    """

    def __init__(
        self,
        runs: int = 0,
        repeats: int = 5,
        keep: Callable[[TimeReport], object] = lambda report: None,
    ) -> None:
        if runs < 0:
            raise HPUError(f"-n is {runs}: use 1 or more, or 0 to choose a number automatically.")
        if repeats < 1:
            raise HPUError(f"-r is {repeats}: use 1 or more.")
        self.report = TimeReport()
        self._keep = keep
        self._schedule = self._timed(runs, repeats)

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing, because code that raised an error is not timed."""

    def summary(self) -> TimeReport | None:
        """Return the report, or None if the code raised an error before the first repeat ended."""
        if not self.report.steady:
            return None
        self._keep(self.report)
        return self.report

    def again(self) -> bool:
        """Return whether to run the code again."""
        return next(self._schedule, False)

    def _timed(self, runs: int, repeats: int) -> Iterator[bool]:
        singles: list[float] = []
        # If -n is passed, exactly one run precedes the timed runs.
        for _ in range(1 if runs else _WARM_UP_RUNS):
            device.synchronize()
            start = clock.perf_counter()
            yield True
            device.synchronize()
            singles.append(clock.perf_counter() - start)
            if singles[-1] > 10 * _REPEAT_TIME:
                break
        self.report.runs = runs or _runs_for(singles[-1])
        for _ in range(repeats):
            device.synchronize()
            start, on_card = clock.perf_counter(), CardWatch()
            for _ in range(self.report.runs):
                yield True
            device.synchronize()
            self.report.steady.append((clock.perf_counter() - start) / self.report.runs)
            if (lap := on_card.lap()) is not None:
                self.report.card.append(lap.seconds / self.report.runs)
                self.report.band = lap.band
            # Update after each repeat, so that an interrupted cell reports completed repeats.
            slow = [
                number
                for number, seconds in enumerate(singles, 1)
                if seconds > _WARMING * self.report.mean
            ]
            self.report.first = singles[: max(slow, default=1)]


def _runs_for(seconds: float) -> int:
    return max(1, min(_MOST_RUNS, round(_REPEAT_TIME / max(seconds, 1e-9))))


def timed(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    runs: int,
    repeats: int,
) -> TimeReport:
    """Time ``function(*arguments, **keywords)``; see `hpu_magic.time`."""
    if not callable(function):
        raise HPUError(f"{function!r} is not callable: pass a function to time.")
    watch = Stopwatch(runs, repeats)
    while watch.again():
        function(*arguments, **keywords)
    return watch.report
