"""Whether a model fits a card, and how long it takes there: told without a card or computing.

A *program* is what one step would run, operation by operation (`tracing/`); a *layout* says what of
it each of several cards has; memory comes from lifetimes, time from a table of constants (`cost/`).
Knows torch and the vendor's public API, and nothing of notebooks. This package can be called
itself, so that its name is the command's as well.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from hpu_magic.estimate.estimate import estimate

__all__ = ["estimate"]


class _Callable(ModuleType):
    """A package that is called as its function of the same name."""

    __signature__ = inspect.signature(estimate)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return estimate(*args, **kwargs)


_Callable.__call__.__doc__ = estimate.__doc__
sys.modules[__name__].__class__ = _Callable
