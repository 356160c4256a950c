"""Whole numbers and truth values that follow from what a step is given, such as masks.

Models look at some of them to choose what they run: whether any token is masked, whether positions
follow each other. These few are computed beside the tensors without memory, on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

MOST = 2**20
"""Elements of the largest tensor whose numbers are followed."""

aten = torch.ops.aten
_KINDS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_WITHOUT_OPERANDS = frozenset(
    getattr(aten, name)
    for name in ("arange", "ones", "zeros", "full", "scalar_tensor", "eye", "linspace")
)
_OF_SHAPES = frozenset(
    getattr(aten, name)
    for name in ("ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full")
)
_CPU = torch.device("cpu")


def tell(tensor: torch.Tensor, numbers: torch.Tensor) -> None:
    """Make the numbers of a fake tensor known, unless it is too large or of other kinds."""
    if _is_followed(numbers) and not tensor.is_inference():
        vars(tensor)["_known_numbers"] = (numbers, tensor._version)


def numbers_of(tensor: Any) -> torch.Tensor | None:
    """Return the numbers of a fake tensor as a CPU tensor; None where they are not known."""
    known = vars(tensor).get("_known_numbers") if isinstance(tensor, FakeTensor) else None
    if known is None or tensor.is_inference() or tensor._version != known[1]:
        return None  # in the last case, it has been written to
    numbers: torch.Tensor = known[0]
    return numbers


def follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Make the numbers of an operator's results known, where those of its operands are."""
    if func._schema.is_mutable or not _may_follow(func, args):
        return
    results = [one for one in pytree.tree_leaves(result) if isinstance(one, FakeTensor)]
    if not results or not all(map(_is_followed, results)):
        return
    computed = compute(func, args, kwargs)
    if computed is None:
        return
    found = [one for one in pytree.tree_leaves(computed) if isinstance(one, torch.Tensor)]
    for one, numbers in zip(results, found, strict=True):
        tell(one, numbers)


def compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what an operator gives on the CPU; None where an operand's numbers are unknown."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return None
    leaves, form = pytree.tree_flatten((args, kwargs))
    given: list[Any] = []
    for one in leaves:
        if isinstance(one, FakeTensor):
            numbers = numbers_of(one)
            if numbers is None and func.overloadpacket in _OF_SHAPES:
                numbers = torch.empty((), dtype=one.dtype).expand(one.shape)
            if numbers is None:
                return None
            given.append(numbers)
        else:
            given.append(_CPU if isinstance(one, torch.device) else one)
    on_cpu, named = pytree.tree_unflatten(given, form)
    try:
        return func(*on_cpu, **named)
    except (RuntimeError, IndexError):  # no kernel for these on the CPU, or wrong ones
        return None


def _may_follow(func: Any, args: tuple[Any, ...]) -> bool:
    """Tell by the first operand, as most operators have floating point ones."""
    first = next(_tensors(args), None)
    if first is None:
        return func.overloadpacket in _WITHOUT_OPERANDS
    return "_known_numbers" in vars(first) or func.overloadpacket in _OF_SHAPES


def _tensors(values: Any) -> Iterator[FakeTensor]:
    for one in values:
        if isinstance(one, FakeTensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)


def _is_followed(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _KINDS and tensor.numel() <= MOST
