"""Finding the tensors of a batch, which may be lists, tuples and mappings of tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the tensors of a batch, in order."""
Path = tuple[Any, ...]
"""Keys and indices that lead to a tensor of a batch."""


def mapped(obj: Any, change: Callable[[Path, torch.Tensor], Any], path: Path = ()) -> Any:
    """Return the same structure with `change` called for each tensor."""
    if isinstance(obj, torch.Tensor):
        return change(path, obj)
    if isinstance(obj, Mapping):
        fresh = copy.copy(obj) if isinstance(obj, MutableMapping) else dict(obj)
        for key, value in obj.items():
            fresh[key] = mapped(value, change, (*path, key))
        return fresh
    if isinstance(obj, (list, tuple)):
        items = [mapped(value, change, (*path, place)) for place, value in enumerate(obj)]
        return type(obj)(*items) if hasattr(obj, "_fields") else type(obj)(items)
    return obj


def tensors_of(obj: Any) -> list[tuple[Path, torch.Tensor]]:
    """Return the tensors of a batch, each with its path."""
    found: list[tuple[Path, torch.Tensor]] = []
    mapped(obj, lambda path, tensor: found.append((path, tensor)))
    return found


def shapes_of(obj: Any) -> Shapes:
    """Return the shapes of the tensors of a batch."""
    return tuple(tuple(tensor.shape) for _, tensor in tensors_of(obj))


def samples_of(batch: Any) -> int:
    """Size of the first dimension of the first tensor that has one; 0 without any."""
    return next((tensor.shape[0] for _, tensor in tensors_of(batch) if tensor.dim()), 0)
