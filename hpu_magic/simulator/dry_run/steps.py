"""Recognizes training steps that repeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from hpu_magic.simulator.dry_run import unwinding

LONGEST_CYCLE = 8
REPEATS = 3
_ENOUGH = 16  # steps
_LONGEST = 30.0  # seconds
_MOST_RAISED = 5


class RunEnded(BaseException):
    """Raised in the script to end a dry run; not an Exception, because scripts catch those."""


class Steps:
    """The optimizer steps of a script, each with the work since the previous one.

    Parameters
    ----------
    most
        Number of steps after which the run ends, unless the steps repeat earlier.
    whole
        Do not end the run when the steps repeat, or because they differ.
    leave
        Ends the process if the script repeatedly catches the exception that ends the run.
    clock
        Returns the time in seconds.
    """

    def __init__(
        self,
        most: int | None = None,
        *,
        whole: bool = False,
        leave: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = 0
        self.repeated: int | None = None
        """Length of the cycle that repeats, or None."""
        self.most = most
        self.may_end: Callable[[], bool] = lambda: True
        """Whether the run may end when the steps repeat."""
        self._whole = whole
        self._works: list[Hashable] = []
        self._leave = leave
        self._clock = clock
        self._began: float | None = None
        self._skipped = 0
        self._skipping_since: float | None = None
        self._raised: list[RunEnded] = []

    def add(self, work: Hashable) -> None:
        """Add a step, unless the run has ended.

        Raises
        ------
        RunEnded
            The requested number of steps is complete, the steps repeat, or they still differ after
            30 seconds. If a function catches the error, it is raised again in that function.
        """
        if self._raised:
            self.end()
            return
        self.count += 1
        if self._began is None:
            self._began = self._clock()
        self._works = [*self._works[1 - LONGEST_CYCLE * REPEATS :], work]
        if self.repeated is None:
            self.repeated = self._cycle()
        complete = self.most is not None and self.count >= self.most
        decided = self.repeated is not None or (
            self.most is None and self.count >= _ENOUGH and self._clock() - self._began > _LONGEST
        )
        if complete or (decided and not self._whole and self.may_end()):
            self.end()

    def forget(self) -> None:
        """Forget all steps, because they were only parts of steps."""
        self.count, self.repeated, self._works = 0, None, []

    def skip(self) -> None:
        """Note a step that did not use the card.

        Raises
        ------
        RunEnded
            No step has used the card for 30 seconds; see `add`.
        """
        if self._raised:
            self.end()
            return
        self._skipped += 1
        if self._skipping_since is None:
            self._skipping_since = self._clock()
        is_long = self._clock() - self._skipping_since > _LONGEST
        if not self.count and self._skipped >= _ENOUGH and is_long and not self._whole:
            self.end()

    def end(self) -> None:
        """End the run, like `add`.

        Raises
        ------
        RunEnded
            See `add`.
        """
        if self._raised:
            self._raise_again()
            return
        self._raised.append(RunEnded())
        raise self._raised[-1]

    def _raise_again(self) -> None:
        if self._raised[-1].__traceback__ is None:
            return  # the error will be raised in one of the next lines
        catcher = unwinding.catcher_of(self._raised[-1])
        if len(self._raised) == _MOST_RAISED:
            self._leave()
        self._raised.append(RunEnded())
        unwinding.raise_outside(self._raised[-1], catcher)

    def _cycle(self) -> int | None:
        for length in range(1, LONGEST_CYCLE + 1):
            last = self._works[-length * REPEATS :]
            if len(last) == length * REPEATS and last == last[:length] * REPEATS:
                return length
        return None
