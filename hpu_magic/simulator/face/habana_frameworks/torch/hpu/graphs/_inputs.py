"""Inputs of captured graphs: the tensors in the arguments, and the copies that replays read."""

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
    """The parts of a container.

    Attributes
    ----------
    children : sequence
        The elements; those that are tensors are inputs of a graph.
    about : object
        Other properties that distinguish the container, such as keys and attributes.
    make : callable
        Returns the same kind of container with different children.
    """

    children: Sequence[Any]
    about: Any
    make: Callable[[Sequence[Any]], Any]


def parts(obj: Any) -> Parts | None:
    """Return the parts of a container, or None for any other object."""
    kind = type(obj)
    if kind is dict:
        names = list(obj)
        return Parts(list(obj.values()), names, lambda new: dict(zip(names, new, strict=True)))
    if kind is tuple or kind is list:
        return Parts(obj, None, kind)
    if kind in _PLAIN or isinstance(obj, torch.Tensor | torch.nn.Module | type):
        return None
    children, structure = tree_flatten(obj, is_leaf=lambda child: child is not obj)
    if not structure.is_leaf():
        return Parts(children, structure.context, lambda new: tree_unflatten(new, structure))
    if isinstance(obj, MutableMapping):
        names, own = list(obj), () if not isinstance(obj, UserDict) else ("data",)
        return _copied(obj, list(obj.values()), names, own, _set_items)
    if is_dataclass(obj):
        names = [field.name for field in fields(obj) if hasattr(obj, field.name)]
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
    """Return parts whose `make` modifies a shallow copy; `own` lists the child attributes."""

    def make(new: Sequence[Any]) -> Any:
        copied = copy.copy(obj)
        replace(copied, names, new)
        return copied

    attributes = getattr(obj, "__dict__", {})
    others = {name: value for name, value in attributes.items() if name not in own}
    return Parts(children, (names, others), make)


def _set_items(container: Any, names: Sequence[Any], new: Sequence[Any]) -> None:
    for name, value in zip(names, new, strict=True):
        container[name] = value


def _set_attributes(container: Any, names: Sequence[Any], new: Sequence[Any]) -> None:
    for name, value in zip(names, new, strict=True):
        object.__setattr__(container, name, value)  # also works for frozen dataclasses


def fixed_copy(obj: Any) -> Any:
    """Return the same structure, with all tensors copied to the device.

    A graph always reads its inputs from the addresses used during the capture. The addresses must
    belong to copies, because each replay writes new values to them.
    """
    if isinstance(obj, torch.Tensor):
        return _fixed(obj)
    container = parts(obj)
    if container is None:
        return obj
    return container.make([fixed_copy(child) for child in container.children])


def _fixed(leaf: torch.Tensor) -> torch.Tensor:
    # Elements of an expanded tensor share memory, so the copy must be contiguous.
    expanded = any(
        step == 0 and size > 1 for size, step in zip(leaf.shape, leaf.stride(), strict=True)
    )
    with torch.inference_mode(False), torch.no_grad():  # allow all modes to fill it
        if expanded:
            fixed = torch.empty(leaf.shape, dtype=leaf.dtype, device="hpu")
        else:
            fixed = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="hpu")
        fixed.copy_(leaf.detach())
    return fixed.requires_grad_(leaf.requires_grad)


def tensors_of(obj: Any) -> list[torch.Tensor]:
    """Return all tensors in a structure, in order."""
    tensors: list[torch.Tensor] = []
    _collect(obj, tensors)
    return tensors


def _collect(obj: Any, tensors: list[torch.Tensor]) -> None:
    """Append the tensors in `obj`; does not call `parts` for the most common containers."""
    kind = type(obj)
    if isinstance(obj, torch.Tensor):
        tensors.append(obj)
    elif kind is dict:
        for value in obj.values():
            _collect(value, tensors)
    elif kind is tuple or kind is list:
        for value in obj:
            _collect(value, tensors)
    elif kind not in _PLAIN and (container := parts(obj)) is not None:
        for value in container.children:
            _collect(value, tensors)


def tensors_within(obj: Any) -> list[torch.Tensor]:
    """Return all tensors in a structure, including those in attributes of its objects."""
    tensors = []
    for leaf in tree_leaves(obj):
        if isinstance(leaf, torch.Tensor):
            tensors.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, type):
            tensors += tensors_of(vars(leaf))
    return tensors


def copy_to(dst: Any, src: Any) -> Any:
    """Copy each tensor in `src` to its counterpart in `dst`, and return `dst`.

    Tensors in `src` may be on another device, such as the CPU. Raises RuntimeError, without copying
    anything, if the number of tensors differs or if two tensors differ in shape or dtype.
    """
    fixed, new = tensors_of(dst), tensors_of(src)
    _check_kinds(fixed, new)
    _copy(fixed, new)
    return dst


def fill(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    """Copy new inputs to the inputs of a graph, after checking them with `check`."""
    check(fixed, new)
    _copy(fixed, new)


def check(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    """Raise RuntimeError if the new inputs do not match the inputs of a graph.

    The number, shapes and dtypes of the inputs must match, and they must be on the device.
    """
    _check_kinds(fixed, new)
    check_device(new)


def check_device(inputs: Sequence[torch.Tensor]) -> None:
    """Raise RuntimeError if an input is not on the device."""
    for index, tensor in enumerate(inputs):
        if tensor.device.type != "hpu":
            raise RuntimeError(
                f"Input {index} is on {tensor.device}, but the inputs of a graph must be on the "
                'device; move it with .to("hpu").'
            )


def _check_kinds(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    if len(fixed) != len(new):
        raise RuntimeError(
            "HPU GRAPH:: Mark User Input Sizes is not same Replay Input Sizes: the graph was "
            f"captured with {len(fixed)} input tensors, but got {len(new)}; pass the same number."
        )
    for index, (own, tensor) in enumerate(zip(fixed, new, strict=True)):
        if own.shape != tensor.shape:
            raise RuntimeError(
                f"Input {index} has shape {list(tensor.shape)}, but the graph was captured with "
                f"{list(own.shape)}; pad it to that shape, or capture another graph."
            )
        if own.dtype != tensor.dtype:
            raise RuntimeError(
                f"Input {index} has dtype {tensor.dtype}, but the graph was captured with "
                f"{own.dtype}; "
                f"convert it with .to({own.dtype})."
            )


def _copy(fixed: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> None:
    with torch.no_grad():
        for own, tensor in zip(fixed, new, strict=True):
            if own is not tensor:
                own.copy_(tensor)
