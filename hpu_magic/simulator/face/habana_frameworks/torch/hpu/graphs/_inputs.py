"""Inputs of captured graphs: keys to find a graph by, fixed copies to replay into."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map


def input_hash(obj: Any) -> int:
    """Return the hash of the key under which a graph for these inputs is kept; see `input_key`."""
    return hash(input_key(obj))


def input_key(obj: Any) -> Hashable:
    """Return the key under which a graph for these inputs is kept.

    A tensor counts by its shape, its layout as a view and autocast's state, not by its dtype or
    values; anything else by its value. Lists, tuples and dicts may be nested.
    """
    return _key(obj, torch.is_autocast_enabled("hpu") and torch.get_autocast_dtype("hpu"))


def _key(obj: Any, autocast: Any) -> Hashable:
    if isinstance(obj, torch.Tensor):
        view = (obj._is_view(), obj.stride(), obj.storage_offset())
        return ("tensor", tuple(obj.shape), view, autocast)
    if isinstance(obj, Mapping):
        return ("dict", tuple([(name, _key(value, autocast)) for name, value in obj.items()]))
    if isinstance(obj, (list, tuple)):
        return ("list", tuple([_key(value, autocast) for value in obj]))
    try:
        hash(obj)
    except TypeError:
        obj = repr(obj)
    return (type(obj).__name__, obj, autocast)


def fixed_copy(obj: Any) -> Any:
    """Return the same structure with every tensor copied to the device.

    A graph reads the addresses it was captured with: the copies are those addresses, so that
    replaying overwrites no tensor of the caller.
    """
    return tree_map(_fixed, obj)


def _fixed(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    # An expanded tensor has fewer elements in memory than in its shape.
    expanded = any(
        step == 0 and size > 1 for size, step in zip(leaf.shape, leaf.stride(), strict=True)
    )
    strides = None if expanded else leaf.stride()
    with torch.inference_mode(False), torch.no_grad():  # it is filled again in any mode
        if strides is None:
            fixed = torch.empty(leaf.shape, dtype=leaf.dtype, device="hpu")
        else:
            fixed = torch.empty_strided(leaf.shape, strides, dtype=leaf.dtype, device="hpu")
        fixed.copy_(leaf.detach())
    return fixed.requires_grad_(leaf.requires_grad)


def tensors_of(obj: Any) -> list[torch.Tensor]:
    """Return every tensor of a structure, in order."""
    found: list[torch.Tensor] = []
    _collect(obj, found)
    return found


def _collect(obj: Any, found: list[torch.Tensor]) -> None:
    """Add the tensors of `obj`; what calls are mostly made of is taken apart without a pytree."""
    kind = type(obj)
    if isinstance(obj, torch.Tensor):
        found.append(obj)
    elif kind is dict:
        for value in obj.values():
            _collect(value, found)
    elif kind is tuple or kind is list:
        for value in obj:
            _collect(value, found)
    elif obj is not None and kind not in (bool, int, float, str):
        found += [leaf for leaf in tree_leaves(obj) if isinstance(leaf, torch.Tensor)]


def tensors_within(obj: Any) -> list[torch.Tensor]:
    """Return every tensor of a structure, also those that its objects have as attributes."""
    found = []
    for leaf in tree_leaves(obj):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, type):
            found += tensors_of(vars(leaf))
    return found


def copy_to(dst: Any, src: Any) -> Any:
    """Copy each tensor of `src` into the one at the same place of `dst`; return `dst`.

    A tensor of `src` may be on another device, such as the host: this is the copy that brings
    it to where a graph reads it.

    Raises
    ------
    RuntimeError
        The structures differ, or two tensors differ in shape or dtype; nothing is copied then.
    """
    fixed, new = tensors_of(dst), tensors_of(src)
    _check_kinds(fixed, new)
    _copy(fixed, new)
    return dst


def fill(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    """Copy new inputs into a graph's own, after checking all of them.

    Raises
    ------
    RuntimeError
        See `check`.
    """
    check(fixed, new)
    _copy(fixed, new)


def check(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    """Refuse new inputs that do not fit a graph's own.

    Raises
    ------
    RuntimeError
        There are more or fewer of them, or one differs in shape or dtype, or is not on the
        device.
    """
    _check_kinds(fixed, new)
    check_device(new)


def check_device(inputs: Sequence[torch.Tensor]) -> None:
    """Refuse inputs that are not on the device.

    Raises
    ------
    RuntimeError
        One of them is elsewhere.
    """
    for index, given in enumerate(inputs):
        if given.device.type != "hpu":
            raise RuntimeError(
                f"Input {index} is on {given.device} and a graph takes its inputs on the device: "
                'move it with .to("hpu").'
            )


def _check_kinds(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    if len(fixed) != len(new):
        raise RuntimeError(
            "HPU GRAPH:: Mark User Input Sizes is not same Replay Input Sizes: the graph was "
            f"captured with {len(fixed)} input tensors and got {len(new)}; pass as many as it "
            "was captured with."
        )
    for index, (own, given) in enumerate(zip(fixed, new, strict=True)):
        if own.shape != given.shape:
            raise RuntimeError(
                f"Input {index} has shape {list(given.shape)} and the graph was captured with "
                f"{list(own.shape)}: pad it to that shape, or capture a graph for the new one."
            )
        if own.dtype != given.dtype:
            raise RuntimeError(
                f"Input {index} is {given.dtype} and the graph was captured with {own.dtype}: "
                f"convert it with .to({own.dtype})."
            )


def _copy(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for own, given in zip(fixed, new, strict=True):
            if own is not given:
                own.copy_(given)
