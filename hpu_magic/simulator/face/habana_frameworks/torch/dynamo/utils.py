"""Helper functions for nested arguments and text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any


def auto_map(f: Callable[..., Any]) -> Callable[..., Any]:
    """Apply `f` to each element of nested lists and tuples in its first argument."""

    @functools.wraps(f)
    def mapped(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, list | tuple):
            items = [mapped(item, *args, **kwargs) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return f(value, *args, **kwargs)

    return mapped


def str_join(separator: str, values: Iterable[Any]) -> str:
    """Convert the values to strings, and join them with `separator`."""
    return separator.join(map(str, values))
