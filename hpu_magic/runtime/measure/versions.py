"""Detect in-place writes to device tensors with PyTorch's version counters.

PyTorch counts the in-place operations on each tensor to protect the backward pass.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpu_magic.runtime.device import device

_MOST_TENSORS = 2_000
# Limit for all containers together, because lists of a million numbers are common in notebooks.
_MOST_ITEMS = 5_000
_MOST_ITEMS_OF_ONE = 1_000


def versions(namespace: Mapping[str, Any]) -> dict[int, int]:
    """Return the version counter of each device tensor in ``namespace``, keyed by its ``id``.

    The result covers tensors, parameters and buffers of modules, and parameters of optimizers. The
    values in the namespace are searched first, and then the items of lists, tuples and dicts, up to
    2,000 tensors in total. The function neither keeps tensors alive nor waits for the device. The
    result is empty before a card is acquired.
    """
    if not device.taken():
        return {}
    torch = sys.modules["torch"]
    holders = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
    values = list(namespace.values())
    known: dict[int, int] = {}
    for value in itertools.chain(values, itertools.islice(_items(values), _MOST_ITEMS)):
        # isinstance() would read the object's __class__, which makes a lazy object load its value.
        if not issubclass(type(value), holders):
            continue
        try:
            _note(_held(value, torch), known)
        # User-defined subclasses of modules, optimizers and tensors may raise any exception.
        except Exception:  # noqa: BLE001
            continue
        if len(known) >= _MOST_TENSORS:
            break
    return known


def written(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    """Return whether a tensor in `before` has a different version in `after`."""
    return any(before.get(tensor, version) != version for tensor, version in after.items())


def _items(values: list[Any]) -> Iterator[Any]:
    for value in values:
        kind = type(value)
        if kind is list or kind is tuple or kind is dict:
            items = value.values() if kind is dict else value
            # Converted to a list, because another thread may change a dict during the iteration.
            yield from list(itertools.islice(items, _MOST_ITEMS_OF_ONE))


def _held(value: Any, torch: Any) -> Iterable[Any]:
    if issubclass(type(value), torch.Tensor):
        return (value,)
    if issubclass(type(value), torch.nn.Module):
        return itertools.chain(value.parameters(), value.buffers())
    return itertools.chain.from_iterable(group["params"] for group in value.param_groups)


def _note(tensors: Iterable[Any], known: dict[int, int]) -> None:
    for tensor in itertools.islice(tensors, _MOST_TENSORS - len(known)):
        if id(tensor) in known:
            continue
        try:
            if tensor.device.type == "hpu":
                known[id(tensor)] = tensor._version
        except RuntimeError:  # a tensor created in inference mode has no version counter
            continue
