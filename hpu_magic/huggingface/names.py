"""Which objects are those of transformers; loads nothing."""

from __future__ import annotations

import sys
from typing import Any

TRAINER_MODULE = "transformers.trainer"


def is_trainer(value: Any) -> bool:
    """Tell whether `value` is a ``transformers.Trainer``, or of a class derived from it."""
    trainer_class = getattr(sys.modules.get(TRAINER_MODULE), "Trainer", None)
    return trainer_class is not None and isinstance(value, trainer_class)
