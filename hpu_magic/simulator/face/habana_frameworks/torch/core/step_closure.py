"""Marks that end a lazy graph. In eager mode there is no graph, and they do nothing."""

from collections.abc import Callable
from typing import Any

from ..utils.internal import lazy_only

_closures: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


@lazy_only
def mark_step(device_str: str = "", sync: bool = False) -> None:
    """End the graph that was recorded and run the step closures."""
    _run_closures()


@lazy_only
def iter_mark_step(device_str: str = "") -> None:
    """Mark the end of an iteration and run the step closures."""
    _run_closures()


@lazy_only
def add_step_closure(closure: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
    """Have `closure` called once, after the next `mark_step`."""
    _closures.append((closure, args))


def _run_closures() -> None:
    pending = _closures.copy()
    _closures.clear()
    for closure, args in pending:
        closure(*args)
