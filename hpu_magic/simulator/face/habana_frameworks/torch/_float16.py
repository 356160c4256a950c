"""First-generation cards do not compute in float16, so autocast never computes in it there."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch

_SUPPORTED = "HPU Autocast on GAUDI only supports dtypes of torch.bfloat16 currently."
_refused = False


def refuse_in_autocast() -> None:
    """Make ``torch.autocast("hpu", dtype=torch.float16)`` warn and disable itself.

    PyTorch's own list of the types that autocast on ``hpu`` supports is fixed, and knows no
    generations; the warning is the one it gives for types outside that list.
    """
    global _refused
    _refused = True
    autocast = torch.amp.autocast_mode.autocast
    initialize = autocast.__init__

    @functools.wraps(initialize)
    def wrapper(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        if self._enabled and self.device == "hpu" and self.fast_dtype == torch.float16:
            warnings.warn(
                "In HPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                + _SUPPORTED,
                stacklevel=2,
            )
            self._enabled = False

    autocast.__init__ = wrapper


def refused(dtype: torch.dtype) -> bool:
    """Tell whether autocast cannot compute in `dtype` on this card, and warn if so."""
    if not (_refused and dtype == torch.float16):
        return False
    warnings.warn(
        f"In HPU autocast, but the target dtype {dtype} is not supported; it stays "
        f"{torch.get_autocast_dtype('hpu')}.\n" + _SUPPORTED,
        stacklevel=3,
    )
    return True
