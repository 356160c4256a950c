"""Detect transformers objects without importing the library."""

from __future__ import annotations

import sys
from typing import Any

TRAINER_MODULE = "transformers.trainer"


def is_trainer(value: Any) -> bool:
    """Return whether `value` is a ``transformers.Trainer`` or an instance of a subclass."""
    trainer_class = getattr(sys.modules.get(TRAINER_MODULE), "Trainer", None)
    return trainer_class is not None and isinstance(value, trainer_class)
