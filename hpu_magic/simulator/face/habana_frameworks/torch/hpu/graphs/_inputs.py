"""Inputs of captured graphs: the tensors within arguments, and fixed copies to replay into."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


@dataclass
class Parts:
    """What a container is made of.

    Attributes
    ----------
    children : sequence
        Where tensors are a graph's inputs.
    about : object
        What else distinguishes the container: names of the children, further attributes.
    make : callable
        Returns such a container of other children.
    """

    children: Sequence[Any]
    about: Any
    make: Callable[[Sequence[Any]], Any]


def parts(obj: Any) -> Parts | None:
    """Take a container apart by one level; None for anything else."""
    kind = type(obj)
    if kind is dict:
        names = list(obj)
        return Parts(list(obj.values()), names, lambda new: dict(zip(names, new, strict=True)))
    if kind is tuple or kind is list:
        return Parts(obj, None, kind)
    if kind in _PLAIN or isinstance(obj, torch.Tensor | torch.nn.Module | type):
        return None
    children, structure = tree_flatten(obj, is_leaf=lambda one: one is not obj)
    if not structure.is_leaf():
        return Parts(children, structure.context, lambda new: tree_unflatten(new, structure))
    if isinstance(obj, MutableMapping):
        names, own = list(obj), () if not isinstance(obj, UserDict) else ("data",)
        return _copied(obj, list(obj.values()), names, own, _set_items)
    if is_dataclass(obj):
        names = [one.name for one in fields(obj) if hasattr(obj, one.name)]
        children = [getattr(obj, name) for name in names]
        return _copied(obj, children, names, names, _set_attributes)
    if isinstance(obj, list):
        return _copied(obj, obj, range(len(obj)), (), _set_items)
    return None


def _copied(
    obj: Any,
    children: Sequence[Any],
    names: Sequence[Any],
    own: Sequence[str],
    replace: Callable[[Any, Sequence[Any], Sequence[Any]], None],
) -> Parts:
    """Return parts that are replaced in a shallow copy; `own` attributes are the children."""

    def make(new: Sequence[Any]) -> Any:
        made = copy.copy(obj)
        replace(made, names, new)
        return made

    attributes = getattr(obj, "__dict__", {})
    others = {name: value for name, value in attributes.items() if name not in own}
    return Parts(children, (names, others), make)


def _set_items(made: Any, names: Sequence[Any], new: Sequence[Any]) -> None:
    for name, value in zip(names, new, strict=True):
        made[name] = value


def _set_attributes(made: Any, names: Sequence[Any], new: Sequence[Any]) -> None:
    for name, value in zip(names, new, strict=True):
        object.__setattr__(made, name, value)  # of frozen ones too


def fixed_copy(obj: Any) -> Any:
    """Return the same structure with every tensor copied to the device.

    A graph reads the addresses it was captured with: the copies are those addresses, so that
    replaying overwrites no tensor of the caller.
    """
    if isinstance(obj, torch.Tensor):
        return _fixed(obj)
    taken = parts(obj)
    return obj if taken is None else taken.make([fixed_copy(one) for one in taken.children])


def _fixed(leaf: torch.Tensor) -> torch.Tensor:
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
    """Add the tensors of `obj`; what calls are mostly made of is taken apart right here."""
    kind = type(obj)
    if isinstance(obj, torch.Tensor):
        found.append(obj)
    elif kind is dict:
        for value in obj.values():
            _collect(value, found)
    elif kind is tuple or kind is list:
        for value in obj:
            _collect(value, found)
    elif kind not in _PLAIN and (taken := parts(obj)) is not None:
        for value in taken.children:
            _collect(value, found)


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
