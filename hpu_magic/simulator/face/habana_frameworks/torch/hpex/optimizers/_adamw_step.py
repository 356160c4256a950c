"""State and step of AdamW, shared by both FusedAdamW optimizers."""

from __future__ import annotations

import functools
import math
from typing import Any

from habana_frameworks.torch._card_types import E5M2_MAX, GAUDI2_E4M3FN_MAX
from habana_frameworks.torch.utils.internal import is_lazy

import torch

MomentsDtype = torch.dtype | tuple[torch.dtype | None, torch.dtype | None] | None

_MOMENTS = ("exp_avg", "exp_avg_sq")
# Moments in E4M3 stay within the range that every card supports.
_LARGEST = {torch.float8_e5m2: E5M2_MAX, torch.float8_e4m3fn: GAUDI2_E4M3FN_MAX}


def fill_state(state: dict[str, Any], parameter: torch.Tensor, moments: MomentsDtype) -> None:
    """Initialize a parameter's state with zero moments, and with scales if a moment is FP8."""
    dtypes = _dtypes(parameter, moments)
    state["step"] = 0  # the group counts the steps
    for name, dtype in zip(_MOMENTS, dtypes, strict=True):
        state[name] = torch.zeros_like(parameter, dtype=dtype)
    if any(dtype in _LARGEST for dtype in dtypes):
        for name in _MOMENTS:
            state[f"{name}_scale"] = _no_scale(parameter)


def load_moments(
    state: dict[str, Any], saved: dict[str, Any], parameter: torch.Tensor, moments: MomentsDtype
) -> None:
    """Load the moments from a saved state, and convert them to the optimizer's moment dtypes.

    PyTorch would convert the moments to the dtype of the parameter.
    """
    dtypes = _dtypes(parameter, moments)
    scales = {}
    for name, dtype in zip(_MOMENTS, dtypes, strict=True):
        if name not in saved:
            continue
        moment = saved[name].to(parameter.device)
        scale = state.pop(f"{name}_scale", None)
        if scale is None:
            scale = _no_scale(parameter)
        if moment.dtype != dtype:
            exact = moment.to(torch.promote_types(parameter.dtype, torch.float32))
            if moment.dtype in _LARGEST:
                exact = exact / scale
            scale = _scale_of(exact, dtype).to(scale.dtype)
            moment = (exact * scale).to(dtype)
        state[name], scales[f"{name}_scale"] = moment.clone(), scale
    if any(dtype in _LARGEST for dtype in dtypes):
        state.update(scales)


def _dtypes(parameter: torch.Tensor, moments: MomentsDtype) -> tuple[torch.dtype, torch.dtype]:
    first, second = moments if isinstance(moments, tuple) else (moments, moments)
    return first or parameter.dtype, second or parameter.dtype


def _no_scale(parameter: torch.Tensor) -> torch.Tensor:
    return torch.ones(1, dtype=parameter.dtype, device=parameter.device)


def _scale_of(moment: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the largest power of two that keeps the scaled moment within the range of `dtype`."""
    one = torch.ones(1, dtype=moment.dtype, device=moment.device)
    if dtype not in _LARGEST or not moment.numel():
        return one
    fitting = (_LARGEST[dtype] / moment.abs().max()).log2().floor().exp2()
    return torch.where(fitting.isfinite() & (fitting > 0), fitting, one)


def corrected(lr: float, betas: tuple[float, float], step: int, bias_correction: bool) -> float:
    """Return the learning rate, with Adam's bias correction applied if requested."""
    if not bias_correction:
        return lr
    beta1, beta2 = betas
    return lr * math.sqrt(1.0 - beta2**step) / (1.0 - beta1**step)


def update(
    parameters: list[torch.Tensor],
    grads: list[torch.Tensor],
    states: list[dict[str, Any]],
    rate: float,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Perform a step with the learning rate `rate`; `lr` is only used for weight decay."""
    # The operator rounds these numbers to the dtype of each weight.
    widest = functools.reduce(torch.promote_types, {each.dtype for each in parameters})

    def number(value: float) -> torch.Tensor:
        return torch.tensor([value], dtype=widest).to(parameters[0].device)

    def scales(name: str) -> list[torch.Tensor] | None:
        if not any(name in state for state in states):
            return None
        return [
            state[name] if name in state else _no_scale(parameter)
            for parameter, state in zip(parameters, states, strict=True)
        ]

    moments = [[state[name] for state in states] for name in _MOMENTS]
    decay = 1.0 - weight_decay * lr
    torch.ops.hpu.optimizer_adamw(
        *(grads, parameters, *moments, number(-rate)),
        *(*betas, eps),
        *((decay,) if is_lazy() else (number(decay), decay != 1.0)),
        *(scales("exp_avg_scale"), scales("exp_avg_sq_scale")),
    )
