"""Tensors within what models take and give: tuples, lists, mappings and dataclasses of them."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a nest of the same form with each tensor changed; what it is made of is left as is."""

    def leaf(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            return change(one)
        if isinstance(one, UserDict):  # a batch of transformers
            made: Any = copy(one)
            made.data = mapped(one.data, change)
            return made
        if _is_record(one):
            made = copy(one)
            for name, held in _fields(one):
                object.__setattr__(made, name, mapped(held, change))
            return made
        return one

    return pytree.tree_map(leaf, value)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a nest in their order."""
    for one in pytree.tree_leaves(value):
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, Mapping):
            yield from tensors(list(one.values()))
        elif _is_record(one):
            yield from tensors([held for _, held in _fields(one)])


def described(value: Any) -> str:
    """Return what a nest is, in a few words: ``float32[8, 512]``, or the name of a type."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple) and 0 < len(value) <= _SHOWN:
        return f"({', '.join(map(described, value))})"
    if isinstance(value, Mapping) and 0 < len(value) <= _SHOWN:
        return f"{{{', '.join(f'{key}: {described(one)}' for key, one in value.items())}}}"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


_SHOWN = 8


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _fields(record: Any) -> list[tuple[str, Any]]:
    named = [one.name for one in fields(record)]
    return [(name, getattr(record, name)) for name in named if hasattr(record, name)]
