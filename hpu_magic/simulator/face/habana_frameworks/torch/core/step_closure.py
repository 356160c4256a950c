"""Step marks, which end a graph in lazy mode and have no effect in eager mode."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher
from habana_frameworks.torch.utils.internal import is_lazy, lazy_only

from hpu_magic.simulator import engine

_closures: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


@lazy_only
def mark_step(device_str: str = "", sync: bool = False) -> None:
    """Execute the recorded operations, then run the step closures.

    `device_str` is ignored, because a process has only one device. On a card, `sync` waits until
    the host has launched the graph; the simulator always waits.
    """
    engine.load().mark_step()
    EventDispatcher.instance().deliver()
    _run_closures()


def _mark_step_if_lazy() -> None:
    """Call `mark_step` in lazy mode; in eager mode, do nothing, without a warning."""
    if is_lazy():
        mark_step()


@lazy_only
def iter_mark_step(device_str: str = "") -> None:
    """Run the step closures at the end of an iteration, without executing recorded operations."""
    _run_closures()


@lazy_only
def add_step_closure(closure: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
    """Call `closure` once with `args` after the next `mark_step`."""
    _closures.append((closure, args))


def _run_closures() -> None:
    """Run each pending closure once. Log errors, so that the other closures still run."""
    pending = _closures.copy()
    _closures.clear()
    try:
        while pending:
            closure, args = pending.pop(0)
            try:
                closure(*args)
            except Exception:  # the step has already run, so log the error and continue
                logging.getLogger("habana_frameworks.torch").exception(
                    "The step closure %s failed", getattr(closure, "__qualname__", closure)
                )
    finally:
        _closures[:0] = pending  # after an interrupt, the next mark runs the remaining closures
