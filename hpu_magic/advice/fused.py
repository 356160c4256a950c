"""The vendor's fused operators in the place of PyTorch's, for as long as a step is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hpu_magic.estimate.tracing.program import Program

__all__ = ["attends_in_parts", "fused_attention", "fused_norms", "plain_norms"]


def plain_norms(model: nn.Module) -> list[nn.Module]:
    """Return the modules that are root mean square norms over one dimension, with a weight.

    They are known by their class's name, as each library has its own.
    """
    return [
        one
        for one in model.modules()
        if type(one).__name__.endswith("RMSNorm")
        and isinstance(weight := getattr(one, "weight", None), nn.Parameter)
        and len(weight.shape) == 1
        and _epsilon(one) is not None
    ]


def _epsilon(norm: nn.Module) -> float | None:
    for name in ("eps", "variance_epsilon", "epsilon"):
        value = getattr(norm, name, None)
        if isinstance(value, float):
            return value
    return torch.finfo(torch.float32).eps if isinstance(norm, nn.RMSNorm) else None


@contextmanager
def fused_norms(model: nn.Module) -> Iterator[None]:
    """Have the norms of a model run as the vendor's fused operator inside the block."""
    from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

    norms = plain_norms(model)
    before = {id(one): vars(one).get("forward") for one in norms}
    for one in norms:
        vars(one)["forward"] = _fused(one, FusedRMSNorm)
    try:
        yield
    finally:
        for one in norms:
            vars(one).pop("forward", None)
            if before[id(one)] is not None:
                vars(one)["forward"] = before[id(one)]


def _fused(norm: nn.Module, operator: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    epsilon = _epsilon(norm)

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        weight = norm.weight
        result: torch.Tensor = operator.apply(hidden, weight.to(hidden.dtype), epsilon)
        return result

    return forward


def attends_in_parts(program: Program) -> bool:
    """Tell whether a step calls PyTorch's attention, which the card runs in parts."""
    return any(
        "scaled_dot_product" in one.operator._schema.name
        and "fused_sdpa" not in one.operator.name()
        for one in program.operations
    )


@contextmanager
def fused_attention() -> Iterator[None]:
    """Have PyTorch's function for attention run as the vendor's fused one inside the block."""
    from habana_frameworks.torch.hpex.kernels import FusedSDPA

    functions: Any = nn.functional
    plain = functions.scaled_dot_product_attention

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **_: Any,
    ) -> Any:
        return FusedSDPA.apply(query, key, value, attn_mask, dropout_p, is_causal, scale)

    functions.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functions.scaled_dot_product_attention = plain
