"""Process the tensors in a batch, which can be a nested list, tuple or mapping."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of the tensors in a batch, in order."""
Path = tuple[Any, ...]
"""The keys and indices that lead to a tensor in a batch."""


def mapped(obj: Any, change: Callable[[Path, torch.Tensor], Any], path: Path = ()) -> Any:
    """Return the same structure, with each tensor replaced by the result of `change`."""
    if isinstance(obj, torch.Tensor):
        return change(path, obj)
    if isinstance(obj, Mapping):
        mapping = copy.copy(obj) if isinstance(obj, MutableMapping) else dict(obj)
        for key, value in obj.items():
            mapping[key] = mapped(value, change, (*path, key))
        return mapping
    if isinstance(obj, (list, tuple)):
        items = [mapped(value, change, (*path, index)) for index, value in enumerate(obj)]
        return type(obj)(*items) if hasattr(obj, "_fields") else type(obj)(items)
    return obj


def tensors_of(obj: Any) -> list[tuple[Path, torch.Tensor]]:
    """Return the tensors in a batch and their paths."""
    tensors: list[tuple[Path, torch.Tensor]] = []
    mapped(obj, lambda path, tensor: tensors.append((path, tensor)))
    return tensors


def shapes_of(obj: Any) -> Shapes:
    """Return the shapes of the tensors in a batch."""
    return tuple(tuple(tensor.shape) for _, tensor in tensors_of(obj))


def samples_of(batch: Any) -> int:
    """Return the batch size: dimension 0 of the first tensor that is not a scalar, or 0."""
    return next((tensor.shape[0] for _, tensor in tensors_of(batch) if tensor.dim()), 0)
