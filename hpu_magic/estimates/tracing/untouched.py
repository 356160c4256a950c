"""What a trace leaves as it was: a model, with what it notes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Leave each module of a model as it was, and the lists, sets and dicts that it has."""
    modules = [(module, dict(vars(module))) for module in model.modules()]
    # Parameters, buffers and modules are in such dicts.
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
    """Yield containers, and those within dicts, each with a copy of what is in it."""
    for one in values:
        if isinstance(one, dict):
            yield one, dict(one)
            if levels > 1:
                yield from _contents(list(one.values()), levels - 1)
        elif isinstance(one, list | deque):
            yield one, list(one)
        elif isinstance(one, set):
            yield one, set(one)


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
