"""The time for which training waits for batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


class Waiting:
    """A clock that runs while a batch is requested.

    Attributes
    ----------
    seconds : float
        Total time.
    seconds_of_first : float
        The part for the first batch of each epoch, which may start worker processes.
    batches : int
        Number of requests; the end of an epoch counts as one.
    """

    def __init__(self) -> None:
        self._started = 0.0
        self.reset()

    def reset(self) -> None:
        """Set all values to 0."""
        self.seconds = self.seconds_of_first = 0.0
        self.batches = 0
        self._first = True

    def epoch_began(self) -> None:
        """Note that the next batch is the first of its epoch."""
        self._first = True

    def start(self) -> None:
        """Start the clock at the request of a batch."""
        self._started = time.monotonic()

    def stop(self) -> None:
        """Stop the clock and count a batch."""
        waited = time.monotonic() - self._started
        self.seconds += waited
        self.batches += 1
        if self._first:
            self._first = False
            self.seconds_of_first += waited

    def iterator_created(self) -> None:
        """Count the time since `start`, for the creation of the loader's iterator."""
        waited = time.monotonic() - self._started
        self.seconds += waited
        self.seconds_of_first += waited

    def over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator over the same batches that measures the waits."""
        return _Timed(batches, self)


class _Timed:
    def __init__(self, batches: Iterator[Any], clock: Waiting) -> None:
        self._batches, self._clock = batches, clock

    def __iter__(self) -> _Timed:
        return self

    def __next__(self) -> Any:
        self._clock.start()
        try:
            return next(self._batches)
        finally:
            self._clock.stop()
