"""Replace PyTorch's operators with the vendor's fused operators while a step is traced."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from hpu_magic.estimates.tracing.fake_card import one_at_a_time
from hpu_magic.estimates.tracing.program import Program

_EPSILONS = ("eps", "variance_epsilon", "epsilon")


def plain_norms(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Return the RMS norms that the fused operator can replace, by class name.

    Each library defines its own class, so norms are recognized by class name. The output of each
    norm for a few values is also checked, because some norms add 1 to the weight.
    """
    found: dict[str, list[nn.Module]] = {}
    with one_at_a_time:  # another thread may have temporarily replaced the norms
        for module in model.modules():
            # If an instance overrides forward, it has a hook or has already been replaced.
            own = "forward" in vars(module)
            if type(module).__name__.endswith("RMSNorm") and not own and _is_plain(module):
                found.setdefault(type(module).__name__, []).append(module)
    return found


def _is_plain(norm: nn.Module) -> bool:
    epsilon, weight = _epsilon(norm), norm._parameters.get("weight")
    names = [name for name, parameter in norm._parameters.items() if parameter is not None]
    if epsilon is None or weight is None or weight.dim() != 1 or names != ["weight"]:
        return False
    twin = copy.copy(norm)
    gamma = torch.linspace(0.5, 2, len(weight), device="cpu")
    x = torch.linspace(-1, 2, len(weight), device="cpu")
    vars(twin)["_parameters"] = {"weight": nn.Parameter(gamma, requires_grad=False)}
    try:
        # Most norms in a model have 3D inputs.
        result = twin.forward(x[None, None])
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return False  # the norm's forward method requires more arguments, or tensors on a card
    expected = x * torch.rsqrt(x.square().mean() + epsilon) * gamma
    return isinstance(result, torch.Tensor) and torch.allclose(
        result.float(), expected[None, None], rtol=1e-2, atol=1e-3
    )


def epsilon_name(norm: nn.Module) -> str | None:
    """Return the name of a norm's epsilon attribute; None if it uses PyTorch's default."""
    return next((name for name in _EPSILONS if isinstance(getattr(norm, name, None), float)), None)


def _epsilon(norm: nn.Module) -> float | None:
    name = epsilon_name(norm)
    if name is not None:
        return float(getattr(norm, name))
    return torch.finfo(torch.float32).eps if isinstance(norm, nn.RMSNorm) else None


@contextmanager
def fused_norms(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Inside the with block, replace norms found by `plain_norms` with the fused operator."""
    from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

    try:
        for norm in norms:
            vars(norm)["forward"] = _fused(norm, FusedRMSNorm)
        yield
    finally:
        for norm in norms:
            vars(norm).pop("forward", None)


def _fused(norm: nn.Module, operator: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    epsilon = _epsilon(norm)

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        weight: Any = norm.weight
        result: torch.Tensor = operator.apply(hidden, weight.to(hidden.dtype), epsilon)
        return result

    return forward


def uses_unfused_attention(program: Program) -> bool:
    """Return whether a step uses PyTorch's attention, which is not fused into one operation."""
    return any(
        "scaled_dot_product" in operation.operator._schema.name
        and "fused_sdpa" not in operation.operator.name()
        for operation in program.operations
    )


def fused_attention() -> TorchFunctionMode:
    """Return a context that replaces PyTorch's attention with the fused operator in this thread."""
    return _FusedAttention()


class _FusedAttention(TorchFunctionMode):
    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is nn.functional.scaled_dot_product_attention:
            return _attend(*args, **kwargs or {})
        return function(*args, **kwargs or {})


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Any:
    from habana_frameworks.torch.hpex.kernels import FusedSDPA

    return FusedSDPA.apply(query, key, value, attn_mask, dropout_p, is_causal, scale)
