"""The training pace over time, in steps per second."""

from __future__ import annotations

from hpu_magic.runtime.training.sampler import Sampler

_SHORTEST = 0.5  # a fraction of the interval between two reports


class PaceSeries:
    """Records the training steps per second, without validation, in the series ``speed``.

    A report right after a validation or after a late report may cover only a single step and a
    fraction of a millisecond. Periods that are too short to measure the pace are added to the next
    report. ``interval`` is the number of seconds between two reports.
    """

    def __init__(self, sampler: Sampler, interval: float) -> None:
        self._sampler = sampler
        self._shortest = _SHORTEST * interval
        self._batches = 0
        self._seconds = 0.0
        self._recorded = False

    def add(self, batches: int, seconds: float) -> None:
        """Add a number of batches and the time that they took, in seconds."""
        self._batches += batches
        self._seconds += seconds

    def report(
        self, now: float, step: int, *, steps_per_batch: float = 1.0, last: bool = False
    ) -> None:
        """Record the pace since the last record if enough time has passed.

        ``steps_per_batch`` is less than 1 if gradients are accumulated. The last report records a
        pace even if the fit was shorter than the interval.
        """
        enough = self._seconds >= self._shortest or (last and not self._recorded)
        if not enough or not self._batches or self._seconds <= 0 or steps_per_batch <= 0:
            return
        pace = self._batches * steps_per_batch / self._seconds
        self._sampler.record("speed", moment=now, steps_per_second=pace, step=float(step))
        self._batches, self._seconds, self._recorded = 0, 0.0, True
