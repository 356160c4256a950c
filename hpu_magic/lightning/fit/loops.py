"""Measure how long a fit waits for batches, using the hooks of Lightning's loops."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hpu_magic.runtime.training.observation import Waiting


def timed_fetches(trainer: Any, waiting: Waiting) -> ExitStack:
    """Measure how long a fit waits for batches until the returned stack is closed.

    The loop looks up two methods at the start of an epoch and calls them before and after each
    fetch. If a release of Lightning does not have these methods, nothing is measured.
    """
    loop, stack = trainer.fit_loop.epoch_loop, ExitStack()
    before = getattr(loop, "_on_before_fetch", None)
    after = getattr(loop, "_on_after_fetch", None)
    if before is None or after is None:
        return stack

    def started() -> None:
        before()
        waiting.start()

    def stopped() -> None:
        waiting.stop()
        after()

    _set(loop, "_on_before_fetch", started, stack)
    _set(loop, "_on_after_fetch", stopped, stack)
    return stack


def _set(loop: Any, name: str, call: Callable[[], None], stack: ExitStack) -> None:
    setattr(loop, name, call)
    stack.callback(lambda: vars(loop).pop(name, None))
