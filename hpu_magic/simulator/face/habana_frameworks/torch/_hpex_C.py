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


@_of_lazy_mode("optimizer_sgd_hpu_wrap")
def optimizer_sgd(
    gradients: list[torch.Tensor],
    weights: list[torch.Tensor],
    learning_rate: torch.Tensor,
    wd: float,
    mom: float,
    damp: float,
    nesterov: bool,
) -> None:
    """Step down the gradients; momentum, dampening and Nesterov's form have no effect."""
    torch.ops.hpu.habanaOptimizerSgd(gradients, weights, learning_rate, wd, mom, damp, nesterov)


@_of_lazy_mode("optimizer_sgd_momentum_hpu_wrap")
def optimizer_sgd_momentum(
    gradients: list[torch.Tensor],
    weights: list[torch.Tensor],
    momentum: list[torch.Tensor],
    epoch_num: torch.Tensor,
    learning_rate: torch.Tensor,
    mom: torch.Tensor,
    wd: float,
    damp: float,
    nesterov: bool,
) -> None:
    """Step down a moving sum of the gradients."""
    torch.ops.hpu.habanaOptimizerSgdMomentum(
        gradients, weights, momentum, epoch_num, learning_rate, mom, wd, damp, nesterov
    )


@_of_lazy_mode("optimizer_ema_hpu_wrap")
def fused_ema(
    model_inputs: list[torch.Tensor], updated_ema: list[torch.Tensor], decay: torch.Tensor
) -> None:
    """Move averages towards the model's values."""
    torch.ops.hpu.habanaOptimizerFusedEMA(model_inputs, updated_ema, decay)


@_of_lazy_mode("optimizer_lars_hpu_wrap")
def fused_lars(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    skip_masks: list[int],
    eeta: float,
    weight_decay: float,
    eps: float,
    lr: torch.Tensor,
) -> None:
    """Multiply gradients by the learning rate, and where masked in by a ratio of norms."""
    torch.ops.hpu.habanaOptimizerLars(params, grads, lr, skip_masks, eeta, weight_decay, eps)


@_of_lazy_mode("optimizer_adagrad_hpu_wrap")
def fused_adagrad(
    gradients: list[torch.Tensor],
    weights: list[torch.Tensor],
    variances: list[torch.Tensor],
    epoch_num: torch.Tensor,
    learning_rate: torch.Tensor,
    wd: float,
    lrd: float,
    eps: float,
) -> None:
    """Step down the gradients, each divided by the root of the sum of its squares so far."""
    torch.ops.hpu.habanaOptimizerFusedAdagrad(
        gradients, weights, variances, epoch_num, learning_rate, wd, lrd, eps
    )
