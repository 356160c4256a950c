"""The execution mode of the process, and a timer."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch._flags import is_lazy


def lazy_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """In eager mode, replace a function with one that only logs a warning once."""
    warned = False

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal warned
        if is_lazy():
            return function(*args, **kwargs)
        if not warned:
            import logging

            logging.getLogger("habana_frameworks.torch").warning(
                "%s has no effect in eager mode, it is for lazy mode only (warning logged once)",
                function.__name__,
            )
            warned = True
        return None

    return wrapper


class Timer:
    """Context manager that measures the duration of its block.

    The duration is stored in `seconds`, which is 0 until the block ends.

    To include operations that lazy mode has recorded but not yet executed, call
    ``torch.hpu.synchronize()`` at the end of the block.
    """

    seconds = 0.0

    def __enter__(self) -> Timer:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.perf_counter() - self._started
