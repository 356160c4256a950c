"""How long training waits for its next batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


class Waiting:
    """A clock that runs while a batch is asked for and is not there yet.

    Attributes
    ----------
    seconds : float
        How long in all.
    seconds_of_first : float
        Of these, for the first batch of each epoch, for which worker processes may start.
    batches : int
        How often a batch was asked for; the end of an epoch counts as one.
    """

    def __init__(self) -> None:
        self._asked = 0.0
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.seconds = self.seconds_of_first = 0.0
        self.batches = 0
        self._first = True

    def epoch_began(self) -> None:
        """Note that the next batch is the first of its epoch."""
        self._first = True

    def asked(self) -> None:
        """Start the clock."""
        self._asked = time.monotonic()

    def got(self) -> None:
        """Stop it."""
        waited = time.monotonic() - self._asked
        self.seconds += waited
        self.batches += 1
        if self._first:
            self._first = False
            self.seconds_of_first += waited

    def began(self) -> None:
        """Count what it took to start going through the loader, since `asked`."""
        waited = time.monotonic() - self._asked
        self.seconds += waited
        self.seconds_of_first += waited

    def over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator over the same batches that runs the clock."""
        return _Timed(batches, self)


class _Timed:
    def __init__(self, batches: Iterator[Any], clock: Waiting) -> None:
        self._batches, self._clock = batches, clock

    def __iter__(self) -> _Timed:
        return self

    def __next__(self) -> Any:
        self._clock.asked()
        try:
            return next(self._batches)
        finally:
            self._clock.got()
