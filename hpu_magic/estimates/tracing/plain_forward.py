"""Modules whose forward pass the vendor's wrappers serve from HPU Graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

_WRAPPERS = ("habana_frameworks.torch.hpu.", "hpu_magic.runtime.graphs.")


def unwrap(module: nn.Module) -> None:
    """Have a module run what is captured into graphs: these are of real tensors, and keep them."""
    forwards = list(_wrapped(vars(module).get("forward")))
    if not any(map(_is_graphs, forwards)):
        return
    del vars(module)["forward"]
    if not _is_graphs(forwards[-1]):  # what the module had before may be its own
        vars(module)["forward"] = forwards[-1]


def _wrapped(forward: Any) -> Iterator[Callable[..., Any]]:
    """Yield a function and those that it wraps, the innermost last."""
    while forward is not None:
        yield forward
        forward = getattr(forward, "__wrapped__", None)


def _is_graphs(forward: Any) -> bool:
    while isinstance(forward, functools.partial):
        forward = forward.func
    of = getattr(forward, "__globals__", {}).get("__name__", "")
    return f"{of}.".startswith(_WRAPPERS)
