"""Pipelines of transformers: a model, and the device that its inputs go to."""

from __future__ import annotations

import sys
from typing import Any


def is_pipeline(value: Any) -> bool:
    """Tell whether `value` is a pipeline over a model, without importing the library."""
    library = sys.modules.get("transformers.pipelines.base")
    return library is not None and isinstance(value, library.Pipeline)
