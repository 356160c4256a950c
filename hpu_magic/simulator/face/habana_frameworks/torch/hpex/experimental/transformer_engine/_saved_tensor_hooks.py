"""Return the active saved-tensor hooks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

_Hook = Callable[[Any], Any]
_autograd = torch._C._autograd


def active() -> list[tuple[_Hook, _Hook]]:
    """Return the pack and unpack hooks of the calling thread, the innermost pair first."""
    if not hasattr(_autograd, "_top_saved_tensors_default_hooks"):
        return _tracked.pairs[::-1]
    hooks = []
    while (top := _autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        _autograd._pop_saved_tensors_default_hooks()
    for pack, unpack in reversed(hooks):
        _autograd._push_saved_tensors_default_hooks(pack, unpack)
    return hooks


def track() -> None:
    """Track the hooks of context managers from now on if PyTorch cannot return the active hooks.

    PyTorch 2.6 and its context managers only push and pop hooks.
    """
    if hasattr(_autograd, "_top_saved_tensors_default_hooks"):
        return
    push = _autograd._push_saved_tensors_default_hooks
    pop = _autograd._pop_saved_tensors_default_hooks

    def push_and_track(pack: _Hook, unpack: _Hook) -> None:
        push(pack, unpack)
        _tracked.pairs.append((pack, unpack))

    def pop_and_track() -> None:
        pop()
        if _tracked.pairs:  # no pairs if hooks were pushed before tracking began
            _tracked.pairs.pop()

    _autograd._push_saved_tensors_default_hooks = push_and_track
    _autograd._pop_saved_tensors_default_hooks = pop_and_track


class _Tracked(threading.local):
    def __init__(self) -> None:
        self.pairs: list[tuple[_Hook, _Hook]] = []


_tracked = _Tracked()
