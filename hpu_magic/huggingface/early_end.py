"""Determine why a transformers fit ended early."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def early_end(callbacks: Iterable[Any], metric: str | None) -> str:
    """Return why a fit ended before completing its planned steps."""
    for callback in callbacks:
        checks = getattr(callback, "early_stopping_patience_counter", 0)
        if checks and checks >= callback.early_stopping_patience:
            times = f"{checks} check{'s' * (checks > 1)}"
            return f"{type(callback).__name__}: {metric} did not improve in {times}"
    return "a callback that set control.should_training_stop"
