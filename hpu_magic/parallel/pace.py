"""How many steps a rank makes, and how long its own part of one takes.

Ranks wait for each other where gradients meet, which is in the backward pass. So what a step takes
outside of it (its batch, the forward pass, the optimizer) is the rank's own: the rank that takes
longest there is the one for which the others wait. Times are the host's.
"""

from __future__ import annotations

import functools
import importlib
import time
from typing import Any, NamedTuple


class _Mark(NamedTuple):
    """The end of a step."""

    steps: int
    in_backward: float
    moment: float


class Pace:
    """Counts the steps of optimizers and the time within backward passes."""

    def __init__(self) -> None:
        self._watching = False
        self._in_backward = 0.0
        self.reset()

    @property
    def steps(self) -> int:
        """Steps since the last reset."""
        return self._last.steps

    def watch(self, torch: Any) -> None:
        """Count from now on, once torch has been imported; a second call does nothing."""
        if self._watching or torch is None:
            return
        self._watching = True
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(self._stepped)
        # Tensor.backward calls it by this name.
        torch.autograd.backward = self._timed(torch.autograd.backward)

    def reset(self) -> None:
        """Begin to count anew."""
        self._first = self._read = self._last = _Mark(0, 0.0, 0.0)

    def lately(self) -> tuple[float | None, float | None]:
        """Return steps a second and own seconds of a step, of the steps since it was last asked."""
        since, self._read = self._read, self._last
        return _between(since, self._read)

    def on_the_whole(self) -> tuple[float | None, float | None]:
        """Return the same of all steps after the first."""
        return _between(self._first, self._last)

    def _stepped(self, *_: Any) -> None:
        self._last = _Mark(self._last.steps + 1, self._in_backward, time.perf_counter())
        if self._last.steps == 1:
            self._first = self._read = self._last

    def _timed(self, backward: Any) -> Any:
        @functools.wraps(backward)
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return backward(*arguments, **options)
            finally:
                self._in_backward += time.perf_counter() - began

        return timed


def _between(one: _Mark, other: _Mark) -> tuple[float | None, float | None]:
    made, passed = other.steps - one.steps, other.moment - one.moment
    if made <= 0 or passed <= 0:
        return None, None
    return made / passed, max(0.0, passed - (other.in_backward - one.in_backward)) / made
