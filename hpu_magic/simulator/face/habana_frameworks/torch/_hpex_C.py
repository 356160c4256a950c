"""What the vendor's extensions call in lazy mode, where their operators have other schemas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from ._mode import is_lazy

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _of_lazy_mode(
    frontend: str,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Refuse a function in eager mode, by the name of its counterpart in the vendor's bridge."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @functools.wraps(function)
        def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            if not is_lazy():
                raise RuntimeError(f"Frontend Op {frontend} not supported with new Eager mode")
            return function(*args, **kwargs)

        return wrapper

    return decorate


@_of_lazy_mode("fused_norm_hpu_wrap")
def fused_norm(
    gradients: list[torch.Tensor], max_norm: torch.Tensor, norm_type: float
) -> torch.Tensor:
    """Multiply gradients so that their common norm is at most `max_norm`, and return the norm.

    Parameters
    ----------
    gradients : list of torch.Tensor
        The gradients, and last a tensor of one element, which gets the norm.
    max_norm : torch.Tensor
        The largest norm, one element.
    norm_type : float
        2.0: the others are not supported.
    """
    norm: torch.Tensor = torch.ops.hpu.fused_norm_lazy(gradients, max_norm, norm_type)
    return norm
