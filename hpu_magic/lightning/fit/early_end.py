"""Determine why a Lightning fit ended early."""

from __future__ import annotations

from typing import Any


def early_end(trainer: Any) -> str | None:
    """Return a reason such as ``EarlyStopping: val_loss did not improve in 3 checks``.

    Return None if the fit completed its planned epochs or steps.
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
    """Return why a callback such as EarlyStopping stopped the fit; None if it did not stop it."""
    waited, patience = getattr(callback, "wait_count", 0), getattr(callback, "patience", 1)
    if waited >= patience > 0:
        return f"{callback.monitor} did not improve in {waited} check{'s' * (waited > 1)}"
    if message := getattr(callback, "stopping_reason_message", None):
        return str(message).partition(" Signaling")[0].rstrip(".")
    return f"by {callback.monitor}" if callback.stopped_epoch else None
