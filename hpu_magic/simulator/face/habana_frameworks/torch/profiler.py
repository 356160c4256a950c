"""Deprecated aliases for functions in `utils.profiler`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.utils import profiler


def _deprecated(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__.lstrip("_")

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        warnings.warn(
            f"ProfilerApi.{name} is deprecated; use torch.profiler.profile.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **options)

    return call


class ProfilerApi:
    """Deprecated: use `torch.profiler.profile`."""

    setup_profiler = staticmethod(_deprecated(profiler._setup_profiler))
    start_profiler = staticmethod(_deprecated(profiler._start_profiler))
    stop_profiler = staticmethod(_deprecated(profiler._stop_profiler))
