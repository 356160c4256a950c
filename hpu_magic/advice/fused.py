"""The vendor's fused operators in the place of PyTorch's, for as long as a step is traced."""

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
    """Return the root mean square norms that compute what the fused one does, by their class.

    They are known by their class's name, as each library has its own, and by what they give for a
    few numbers, as some add 1 to their weight.
    """
    found: dict[str, list[nn.Module]] = {}
    with one_at_a_time:  # another thread may have them fused meanwhile
        for one in model.modules():
            # What has a `forward` of its own is hooked, or replaced already.
            own = "forward" in vars(one)
            if type(one).__name__.endswith("RMSNorm") and not own and _is_plain(one):
                found.setdefault(type(one).__name__, []).append(one)
    return found


def _is_plain(norm: nn.Module) -> bool:
    epsilon, weight = _epsilon(norm), norm._parameters.get("weight")
    others = [name for name, one in norm._parameters.items() if one is not None]
    if epsilon is None or weight is None or weight.dim() != 1 or others != ["weight"]:
        return False
    twin = copy.copy(norm)
    gamma = torch.linspace(0.5, 2, len(weight), device="cpu")
    x = torch.linspace(-1, 2, len(weight), device="cpu")
    vars(twin)["_parameters"] = {"weight": nn.Parameter(gamma, requires_grad=False)}
    try:
        # Of three dimensions, as most that they are given in a model.
        given = twin.forward(x[None, None])
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return False  # it takes more than the fused one, or a card's own tensors
    expected = x * torch.rsqrt(x.square().mean() + epsilon) * gamma
    return isinstance(given, torch.Tensor) and torch.allclose(
        given.float(), expected[None, None], rtol=1e-2, atol=1e-3
    )


def epsilon_name(norm: nn.Module) -> str | None:
    """Return the attribute that holds a norm's epsilon; None where it has PyTorch's own."""
    return next((one for one in _EPSILONS if isinstance(getattr(norm, one, None), float)), None)


def _epsilon(norm: nn.Module) -> float | None:
    name = epsilon_name(norm)
    if name is not None:
        return float(getattr(norm, name))
    return torch.finfo(torch.float32).eps if isinstance(norm, nn.RMSNorm) else None


@contextmanager
def fused_norms(norms: Sequence[nn.Module]) -> Iterator[None]:
    """Have norms, of those that `plain_norms` finds, run as the fused operator inside the block."""
    from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

    try:
        for one in norms:
            vars(one)["forward"] = _fused(one, FusedRMSNorm)
        yield
    finally:
        for one in norms:
            vars(one).pop("forward", None)


def _fused(norm: nn.Module, operator: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    epsilon = _epsilon(norm)

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        weight: Any = norm.weight
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


def fused_attention() -> TorchFunctionMode:
    """Return a block in which this thread's attention, PyTorch's function, is the fused one."""
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
