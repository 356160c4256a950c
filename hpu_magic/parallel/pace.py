"""Measure the pace of a rank (steps per second) and its own time per step.

Ranks wait for each other in the backward pass, where gradients are reduced across ranks. The rest
of a step (loading the batch, forward pass, optimizer) is the rank's own time; the rank with the
longest own time makes the other ranks wait. All times are measured on the host.

Optimizers that run one after another, without a backward pass in between, count as one step:
DeepSpeed steps its optimizer once per group of parameters.
"""

from __future__ import annotations

import functools
import importlib
import time
from typing import Any, NamedTuple

from hpu_magic.runtime.measure.card_time import CardPace, CardTime


class _Mark(NamedTuple):
    """The end of a step."""

    steps: int
    backwards: int
    in_backward: float
    moment: float


class Pace:
    """Counts optimizer steps and measures the time spent in backward passes."""

    def __init__(self) -> None:
        self._watching = False
        self._backwards = 0
        self._in_backward = 0.0
        self.reset()

    @property
    def steps(self) -> int:
        """Steps since the last reset."""
        return self._last.steps

    def watch(self, torch: Any) -> None:
        """Start counting unless torch is None; further calls have no effect."""
        if self._watching or torch is None:
            return
        self._watching = True
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(self._stepped)
        # Tensor.backward looks up the function by this name.
        torch.autograd.backward = self._timed(torch.autograd.backward)

    def reset(self) -> None:
        """Set all counts to zero."""
        self._first = self._read = self._last = _Mark(0, 0, 0.0, 0.0)
        self._card = CardPace()

    @property
    def card_step(self) -> CardTime | None:
        """Card time per step, excluding the first step; None if the card's clock is off."""
        return self._card.step

    def lately(self) -> tuple[float | None, float | None]:
        """Return the steps per second and the rank's own time per step since the last call."""
        since, self._read = self._read, self._last
        return _between(since, self._read)

    def overall(self) -> tuple[float | None, float | None]:
        """Return the steps per second and own time per step, excluding the first step."""
        return _between(self._first, self._last)

    def _stepped(self, *_: Any) -> None:
        # A loop that computes its gradients without autograd has no backward passes at all.
        continued = self._last.steps > 0 and 0 < self._backwards == self._last.backwards
        steps = self._last.steps + (not continued)
        self._last = _Mark(steps, self._backwards, self._in_backward, time.perf_counter())
        if steps == 1:
            self._first = self._read = self._last
            self._card.begin()
        else:
            self._card.add(not continued)

    def _timed(self, backward: Any) -> Any:
        @functools.wraps(backward)
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return backward(*arguments, **options)
            finally:
                self._backwards += 1
                self._in_backward += time.perf_counter() - began

        return timed


def _between(first: _Mark, last: _Mark) -> tuple[float | None, float | None]:
    steps, seconds = last.steps - first.steps, last.moment - first.moment
    if steps <= 0 or seconds <= 0:
        return None, None
    return steps / seconds, max(0.0, seconds - (last.in_backward - first.in_backward)) / steps
