"""Track the values of integer and boolean tensors in a trace, such as masks.

Models read some of these values to decide which operations to run, for example to check whether any
token is masked or whether positions are consecutive. Such values are computed on the CPU, in
addition to the fake tensors. A single random number, which may decide whether a model skips a
layer, is assumed to be the mean of its distribution.

The simulator's engine also tracks such values in dry runs. The engine's code is separate, because
traces must also work with a real card, without the engine, and the simulator does not import
estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

MOST = 2**20
"""Maximum number of elements in a tensor whose values are tracked."""

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
_LIFT = aten.lift_fresh.default
_MIDDLE = {aten.rand: 0.5, aten.randn: 0.0}


def set_numbers(tensor: torch.Tensor, numbers: torch.Tensor) -> None:
    """Store the values of a fake tensor, unless it is too large or has an unsupported dtype."""
    if _is_followed(numbers) and not tensor.is_inference():
        _store(tensor, numbers)


def numbers_of(tensor: Any) -> torch.Tensor | None:
    """Return the values of a fake tensor as a CPU tensor; None if they are unknown."""
    if not isinstance(tensor, FakeTensor):
        return None
    known = vars(tensor).get("_known_numbers")
    if known is None:  # PyTorch itself stores the values of constants in the model's code
        constant: torch.Tensor | None = tensor.constant
        return constant if constant is not None and _is_followed(constant) else None
    if tensor.is_inference() or tensor._version != known[1]:
        return None  # the tensor was modified after its values were stored
    numbers: torch.Tensor = known[0]
    return numbers


def _store(tensor: torch.Tensor, numbers: torch.Tensor, *, writes: int = 0) -> None:
    vars(tensor)["_known_numbers"] = (numbers, tensor._version + writes)


def follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Compute and store the values of an operator's results if its operands have known values."""
    if func.overloadpacket in _MIDDLE and isinstance(result, FakeTensor) and result.numel() == 1:
        middle = torch.full((), _MIDDLE[func.overloadpacket], dtype=result.dtype)
        _store(result, middle.expand(result.shape))
        return
    if func is _LIFT and type(args[0]) is torch.Tensor and isinstance(result, torch.Tensor):
        set_numbers(result, args[0].detach().clone())  # a constant in the model's code
        return
    if not _may_follow(func, args):
        return
    if func._schema.is_mutable:
        _follow_write(func, args, kwargs)
        return
    results = [each for each in pytree.tree_leaves(result) if isinstance(each, FakeTensor)]
    if not results or not all(map(_is_followed, results)):
        return
    computed = compute(func, args, kwargs)
    if computed is None:
        return
    found = [each for each in pytree.tree_leaves(computed) if isinstance(each, torch.Tensor)]
    for each, numbers in zip(results, found, strict=True):
        set_numbers(each, numbers)


def _follow_write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Store the values that an operator writes to its first operand and, for a view, to its base.

    PyTorch increments the version of the tensor after the operator has run.
    """
    target = args[0] if args else None
    if not isinstance(target, FakeTensor) or func._schema.arguments[0].alias_info is None:
        return
    numbers, base = numbers_of(target), target._base
    if numbers is None or "_known_numbers" not in vars(target):
        return
    whole = numbers_of(base) if isinstance(base, FakeTensor) else None
    written = compute(func, args, kwargs)
    if isinstance(written, torch.Tensor):
        _store(target, written, writes=1)
        # The stored values of a view share memory with those of its base.
        if (
            base is not None
            and whole is not None
            and whole.untyped_storage() is written.untyped_storage()
        ):
            _store(base, whole, writes=1)


def compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the CPU and return its result, or None if operand values are unknown."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return None
    leaves, form = pytree.tree_flatten((args, kwargs))
    operands: list[Any] = []
    for each in leaves:
        if isinstance(each, FakeTensor):
            numbers = numbers_of(each)
            if numbers is None and func.overloadpacket in _OF_SHAPES:
                numbers = torch.empty((), dtype=each.dtype).expand(each.shape)
            if numbers is None:
                return None
            operands.append(numbers)
        else:
            operands.append(_CPU if isinstance(each, torch.device) else each)
    on_cpu, named = pytree.tree_unflatten(operands, form)
    try:
        return func(*on_cpu, **named)
    except (RuntimeError, IndexError):  # invalid operands or no CPU kernel
        return None


def _may_follow(func: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an operator's results may have known values, judging by its first operand."""
    first = next(_tensors(args), None)
    if first is None:
        return func.overloadpacket in _WITHOUT_OPERANDS
    known = "_known_numbers" in vars(first) or first.constant is not None
    return known or func.overloadpacket in _OF_SHAPES


def _tensors(values: Any) -> Iterator[FakeTensor]:
    for each in values:
        if isinstance(each, FakeTensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)


def _is_followed(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _KINDS and tensor.numel() <= MOST
