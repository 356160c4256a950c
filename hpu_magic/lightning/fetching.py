"""The time that Lightning's loop waits for batches, by where it tells its profiler of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hpu_magic.runtime.measure.waiting import Waiting


def timed_fetches(trainer: Any, waiting: Waiting) -> ExitStack:
    """Have ``waiting`` run while a fit asks for a batch, until the stack is closed.

    The loop calls a method before and one after each fetch, which it looks up as an epoch begins.
    A release without them is not measured.
    """
    loop, stack = trainer.fit_loop.epoch_loop, ExitStack()
    before = getattr(loop, "_on_before_fetch", None)
    after = getattr(loop, "_on_after_fetch", None)
    if before is None or after is None:
        return stack

    def asked() -> None:
        before()
        waiting.asked()

    def got() -> None:
        waiting.got()
        after()

    _set(loop, "_on_before_fetch", asked, stack)
    _set(loop, "_on_after_fetch", got, stack)
    return stack


def _set(loop: Any, name: str, call: Callable[[], None], stack: ExitStack) -> None:
    setattr(loop, name, call)
    stack.callback(lambda: vars(loop).pop(name, None))
