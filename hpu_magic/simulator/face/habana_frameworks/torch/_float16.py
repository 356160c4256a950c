"""First-generation cards do not compute in float16, so autocast to it stays off there."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch


def refuse_in_autocast() -> None:
    """Make ``torch.autocast("hpu", dtype=torch.float16)`` warn and disable itself.

    PyTorch's own list of the types that autocast on ``hpu`` supports is fixed, and knows no
    generations; the warning is the one it gives for types outside that list.
    """
    autocast = torch.amp.autocast_mode.autocast
    initialize = autocast.__init__

    @functools.wraps(initialize)
    def wrapper(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        if self._enabled and self.device == "hpu" and self.fast_dtype == torch.float16:
            warnings.warn(
                "In HPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "HPU Autocast on GAUDI only supports dtypes of torch.bfloat16 currently.",
                stacklevel=2,
            )
            self._enabled = False

    autocast.__init__ = wrapper
