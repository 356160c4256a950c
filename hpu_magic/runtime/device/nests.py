"""Tensors in nested inputs and outputs: tuples, lists, mappings and dataclasses."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a copy of a nested value with each tensor replaced by `change(tensor)`."""

    def leaf(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            return change(each)
        if isinstance(each, UserDict):  # a batch from transformers
            result: Any = copy(each)
            result.data = mapped(each.data, change)
            return result
        if _is_record(each):
            result = copy(each)
            for name, field in _fields(each):
                object.__setattr__(result, name, mapped(field, change))
            return result
        return each

    return pytree.tree_map(leaf, value)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a nested value, in order."""
    for each in pytree.tree_leaves(value):
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, Mapping):
            yield from tensors(list(each.values()))
        elif _is_record(each):
            yield from tensors([field for _, field in _fields(each)])


def described(value: Any) -> str:
    """Return a short description of a nested value, such as ``float32[8, 512]`` or a type name."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple) and 0 < len(value) <= _SHOWN:
        return f"({', '.join(map(described, value))})"
    if isinstance(value, Mapping) and 0 < len(value) <= _SHOWN:
        return f"{{{', '.join(f'{key}: {described(each)}' for key, each in value.items())}}}"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


_SHOWN = 8


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _fields(record: Any) -> list[tuple[str, Any]]:
    names = [field.name for field in fields(record)]
    return [(name, getattr(record, name)) for name in names if hasattr(record, name)]
