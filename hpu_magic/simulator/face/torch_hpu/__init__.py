"""Deprecated aliases for three functions in ``torch.hpu``; each call shows a warning."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch import hpu


def _deprecated(function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        text = f"torch_hpu.{name} is deprecated; use torch.hpu.{name}."
        warnings.warn(text, FutureWarning, stacklevel=2)
        return function(*args, **options)

    return call


is_available = _deprecated(hpu.is_available)
device_count = _deprecated(hpu.device_count)
get_device_name = _deprecated(hpu.get_device_name)
