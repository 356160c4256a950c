"""PyTorch functions that cast their inputs, because they compute new tensors instead of views."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habana_frameworks.torch.hpex.hmp._rules import PRODUCTS, WIDENING

import torch
from torch.nn import functional

# Functions that create, move or describe tensors, but do not compute anything.
_NOT_COMPUTING = frozenset(
    {
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "broadcast_tensors",
        "chalf",
        "clone",
        "contiguous",
        "copy",
        "data",
        "fill",
        "meshgrid",
        "requires_grad",
        "resize",
        "resize_as",
        "set",
        "to",
        "type",
        "type_as",
        "zero",
    }
)
_OPERATORS = ("add", "sub", "mul", "truediv", "matmul", "pow", "floordiv", "mod", "div")
_SPECIAL = frozenset(f"__{prefix}{name}__" for name in _OPERATORS for prefix in ("", "r", "i"))
# Arguments for running statistics, which normalization functions update.
_RUNNING = frozenset({"running_mean", "running_var"})
_RUNNING_PLACES = {
    (functional, "batch_norm"): (1, 2),
    (functional, "instance_norm"): (1, 2),
    (torch, "batch_norm"): (3, 4),
    (torch, "instance_norm"): (3, 4),
}


@dataclass(frozen=True)
class Function:
    """A PyTorch function.

    Attributes
    ----------
    owner : module or type
    attribute : str
        Name in `owner`.
    name : str
        Name of the operator, without the underscores of special methods and in-place operators.
    in_place : bool
        Whether the function writes to its first argument.
    written_places : tuple of int
        Positions of the other arguments that the function writes to.
    inplace_at : int or None
        Position of the parameter ``inplace``, if the function has one.
    """

    owner: Any
    attribute: str
    name: str
    in_place: bool
    written_places: tuple[int, ...]
    inplace_at: int | None = None

    @property
    def written_names(self) -> frozenset[str]:
        """The names of the arguments in `written_places`."""
        return _RUNNING if self.written_places else frozenset()

    def writes_first(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a call writes to its first argument."""
        if self.in_place or self.inplace_at is None:
            return self.in_place
        in_place = args[self.inplace_at] if len(args) > self.inplace_at else kwargs.get("inplace")
        return bool(in_place)

    @property
    def original(self) -> Callable[..., Any]:
        """The function that is currently assigned in `owner`."""
        return getattr(self.owner, self.attribute)

    @property
    def path(self) -> str:
        """The function's dotted name."""
        module = "torch." if isinstance(self.owner, type) else ""
        return f"{module}{self.owner.__name__}.{self.attribute}"

    def replace(self, other: Callable[..., Any]) -> None:
        """Replace the function in its owner."""
        setattr(self.owner, self.attribute, other)


def functions(listed: frozenset[str]) -> Iterator[Function]:
    """Return the functions that cast their inputs, including all listed functions."""
    for owner in (torch, functional, torch.Tensor):
        for attribute in dir(owner):
            if _computes(owner, attribute, listed):
                name, in_place = _operator(attribute)
                written = _RUNNING_PLACES.get((owner, attribute), ())
                at = _inplace_at(getattr(owner, attribute))
                yield Function(owner, attribute, name, in_place, written, at)


def _computes(owner: Any, attribute: str, listed: frozenset[str]) -> bool:
    if attribute in _SPECIAL and owner is torch.Tensor:
        return True
    name = attribute.removesuffix("_")
    if attribute.startswith("_") or name in _NOT_COMPUTING:
        return False
    function = getattr(owner, attribute, None)
    if isinstance(function, type) or not callable(function):
        return False
    # Other functions call operators that cast their inputs.
    return name in listed | PRODUCTS | WIDENING or (not _makes(name) and _is_operator(name))


def _inplace_at(function: Any) -> int | None:
    try:
        parameters = list(inspect.signature(function).parameters)
    except ValueError:  # a built-in function
        return None
    return parameters.index("inplace") if "inplace" in parameters else None


def _makes(name: str) -> bool:
    return name.endswith("_like") or name.startswith(("new_", "is_", "as_", "has_"))


def _is_operator(name: str) -> bool:
    """Return whether the operator `name` takes tensors and returns tensors that are not views."""
    packet = getattr(torch.ops.aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    inputs = [each for schema in schemas for each in schema.arguments[:1]]
    returns = [each for schema in schemas for each in schema.returns]
    returns_view = any(
        each.alias_info is not None and not each.alias_info.is_write for each in returns
    )
    return (
        any("Tensor" in str(each.type) for each in inputs)
        and any("Tensor" in str(each.type) for each in returns)
        and not returns_view
    )


def _operator(attribute: str) -> tuple[str, bool]:
    if attribute in _SPECIAL:
        name = attribute.strip("_")
        return name, name.startswith("i") and name[1:] in _OPERATORS
    if attribute.endswith("_"):
        return attribute.removesuffix("_"), True
    return attribute, False
