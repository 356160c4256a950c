"""Lightning's loops: the time that a fit waits for batches, and the reason for an early end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hpu_magic.runtime.training.observation import Waiting


def timed_fetches(trainer: Any, waiting: Waiting) -> ExitStack:
    """Measure how long a fit waits for batches, until the returned stack is closed.

    The loop looks up two methods at the start of an epoch, and calls them before and after each
    fetch. Releases without these methods are not measured.
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


def early_end(trainer: Any) -> str | None:
    """Return why a fit ended early: ``EarlyStopping: val_loss did not improve in 3 checks``.

    None if it has completed its planned epochs or steps.
    """
    steps_done = trainer.max_steps != -1 and trainer.global_step >= trainer.max_steps
    epochs = trainer.max_epochs
    epochs_done = epochs not in (None, -1) and trainer.current_epoch >= epochs
    if not trainer.should_stop or steps_done or epochs_done:
        return None
    for callback in trainer.callbacks:
        name = type(callback).__name__
        if hasattr(callback, "stopped_epoch") and (reason := _reason(callback)):
            return f"{name}: {reason}"
        remaining = getattr(callback, "time_remaining", None)
        if callable(remaining) and (left := remaining()) is not None and left <= 0:
            return f"{name}: its time is over"
    return "trainer.should_stop, which a callback or the model has set"


def _reason(callback: Any) -> str | None:
    """Return why a callback like EarlyStopping has stopped a fit; None if it has not."""
    waited, patience = getattr(callback, "wait_count", 0), getattr(callback, "patience", 1)
    if waited >= patience > 0:
        return f"{callback.monitor} did not improve in {waited} check{'s' * (waited > 1)}"
    if message := getattr(callback, "stopping_reason_message", None):
        return str(message).partition(" Signaling")[0].rstrip(".")
    return f"by {callback.monitor}" if callback.stopped_epoch else None
