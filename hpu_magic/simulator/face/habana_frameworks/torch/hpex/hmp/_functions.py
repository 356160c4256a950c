"""Which functions of PyTorch cast: those that compute with tensors, and no views of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habana_frameworks.torch.hpex.hmp._rules import PRODUCTS, WIDENING

import torch
from torch.nn import functional

# They make, move or describe tensors, and compute nothing.
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
# Statistics that are updated.
_RUNNING = frozenset({"running_mean", "running_var"})
_RUNNING_PLACES = {
    (functional, "batch_norm"): (1, 2),
    (functional, "instance_norm"): (1, 2),
    (torch, "batch_norm"): (3, 4),
    (torch, "instance_norm"): (3, 4),
}


@dataclass(frozen=True)
class Function:
    """A function as PyTorch has it.

    Attributes
    ----------
    owner : module or type
    attribute : str
        Its name there.
    name : str
        Of the operator, without the underscores of Python's special methods or of those in place.
    in_place : bool
        Whether it writes its first argument.
    written_places : tuple of int
        Places of further arguments that it writes.
    inplace_at : int or None
        Place of its parameter ``inplace``, if it has one.
    """

    owner: Any
    attribute: str
    name: str
    in_place: bool
    written_places: tuple[int, ...]
    inplace_at: int | None = None

    @property
    def written_names(self) -> frozenset[str]:
        """Names of the same arguments."""
        return _RUNNING if self.written_places else frozenset()

    def writes_first(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether a call writes its first argument."""
        if self.in_place or self.inplace_at is None:
            return self.in_place
        given = args[self.inplace_at] if len(args) > self.inplace_at else kwargs.get("inplace")
        return bool(given)

    @property
    def original(self) -> Callable[..., Any]:
        """What is there now."""
        return getattr(self.owner, self.attribute)

    @property
    def path(self) -> str:
        """Where it is to be found."""
        module = "torch." if isinstance(self.owner, type) else ""
        return f"{module}{self.owner.__name__}.{self.attribute}"

    def replace(self, other: Callable[..., Any]) -> None:
        """Put another function in its place."""
        setattr(self.owner, self.attribute, other)


def functions(listed: frozenset[str]) -> Iterator[Function]:
    """Return the functions that cast, those of the lists among them."""
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
    # Functions that are no operators call some, which cast by themselves.
    return name in listed | PRODUCTS | WIDENING or (not _makes(name) and _is_operator(name))


def _inplace_at(function: Any) -> int | None:
    try:
        parameters = list(inspect.signature(function).parameters)
    except ValueError:  # built in
        return None
    return parameters.index("inplace") if "inplace" in parameters else None


def _makes(name: str) -> bool:
    return name.endswith("_like") or name.startswith(("new_", "is_", "as_", "has_"))


def _is_operator(name: str) -> bool:
    """Tell whether it is an operator of PyTorch that takes a tensor and gives no view of it."""
    packet = getattr(torch.ops.aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    takes = any("Tensor" in str(each.type) for schema in schemas for each in schema.arguments[:1])
    views = any(
        each.alias_info is not None and not each.alias_info.is_write
        for schema in schemas
        for each in schema.returns
    )
    gives = any("Tensor" in str(each.type) for schema in schemas for each in schema.returns)
    return takes and gives and not views


def _operator(attribute: str) -> tuple[str, bool]:
    if attribute in _SPECIAL:
        name = attribute.strip("_")
        if name.startswith("i") and name[1:] in _OPERATORS:
            return name, True
        return name, False
    if attribute.endswith("_"):
        return attribute.removesuffix("_"), True
    return attribute, False
