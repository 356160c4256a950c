"""Restore the modules of a model after a trace, and unwrap methods that replay HPU Graphs."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_WRAPPERS = ("habana_frameworks.torch.hpu.", "hpu_magic.runtime.graphs.")


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Restore each module of a model on exit, including its lists, sets and dicts."""
    modules = [(module, dict(vars(module))) for module in model.modules()]
    # The containers include the dicts of parameters, buffers and submodules.
    held = [found for _, attributes in modules for found in _contents(attributes.values(), 2)]
    try:
        yield
    finally:
        for module, attributes in modules:
            vars(module).clear()
            vars(module).update(attributes)
        for container, content in held:
            _restore(container, content)


def _contents(values: Any, levels: int) -> Iterator[tuple[Any, Any]]:
    """Yield all containers, including those in dicts, along with copies of their contents."""
    for value in values:
        if isinstance(value, dict):
            yield value, dict(value)
            if levels > 1:
                yield from _contents(list(value.values()), levels - 1)
        elif isinstance(value, list | deque):
            yield value, list(value)
        elif isinstance(value, set):
            yield value, set(value)


def _restore(container: Any, content: Any) -> None:
    if isinstance(container, dict):
        same = list(map(id, container)) == list(map(id, content)) and list(
            map(id, container.values())
        ) == list(map(id, content.values()))
    elif isinstance(container, set):
        same = container == content
    else:
        same = list(map(id, container)) == list(map(id, content))
    if same:
        return
    container.clear()
    if isinstance(container, dict | set):
        container.update(content)
    else:
        container.extend(content)


def unwrap(module: nn.Module) -> None:
    """Remove wrappers that replay HPU Graphs, because graphs need real tensors."""
    forwards = list(_wrapped(vars(module).get("forward")))
    if not any(map(_is_graphs, forwards)):
        return
    del vars(module)["forward"]
    if not _is_graphs(forwards[-1]):  # the module already had its own forward attribute
        vars(module)["forward"] = forwards[-1]


def _wrapped(forward: Any) -> Iterator[Callable[..., Any]]:
    """Yield a function and the functions that it wraps, ending with the innermost one."""
    while forward is not None:
        yield forward
        forward = getattr(forward, "__wrapped__", None)


def _is_graphs(forward: Any) -> bool:
    while isinstance(forward, functools.partial):
        forward = forward.func
    module = getattr(forward, "__globals__", {}).get("__name__", "")
    return f"{module}.".startswith(_WRAPPERS)
