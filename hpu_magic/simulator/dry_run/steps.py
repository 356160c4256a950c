"""Recognizes training steps that repeat."""

from __future__ import annotations

from collections.abc import Hashable

LONGEST_CYCLE = 8
REPEATS = 3


class RunEnded(BaseException):
    """Raised in the script to end a dry run; not an Exception, because scripts catch those."""


class Steps:
    """The optimizer steps of a script, each with the work since the previous one.

    Parameters
    ----------
    most
        Number of steps after which the run ends, or None to end it when the steps repeat.
    whole
        Never end the run.
    """

    def __init__(self, most: int | None = None, *, whole: bool = False) -> None:
        self.count = 0
        self.repeated: int | None = None
        """Length of the cycle that repeats, or None."""
        self._most = most
        self._whole = whole
        self._works: list[Hashable] = []
        self._ended = False

    def add(self, work: Hashable) -> None:
        """Add a step.

        Raises
        ------
        RunEnded
            The requested number of steps is complete, or the steps repeat.
        """
        self.count += 1
        self._works = [*self._works[1 - LONGEST_CYCLE * REPEATS :], work]
        if self.repeated is None:
            self.repeated = self._cycle()
        complete = self.repeated is not None if self._most is None else self.count >= self._most
        if complete and not self._whole and not self._ended:
            self._ended = True
            raise RunEnded

    def _cycle(self) -> int | None:
        for length in range(1, LONGEST_CYCLE + 1):
            last = self._works[-length * REPEATS :]
            if len(last) == length * REPEATS and last == last[:length] * REPEATS:
                return length
        return None
