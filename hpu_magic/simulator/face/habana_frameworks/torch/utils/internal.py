"""The execution mode of this process."""

import functools
from collections.abc import Callable
from typing import Any

from .._mode import is_lazy


def lazy_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function do nothing in eager mode, and say so once."""
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
