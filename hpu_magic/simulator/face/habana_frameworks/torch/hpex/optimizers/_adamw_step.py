"""AdamW's state and step, for the optimizer of a model and the functional one."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...utils.internal import is_lazy

MomentsDtype = torch.dtype | tuple[torch.dtype | None, torch.dtype | None] | None

_FP8 = (torch.float8_e5m2, torch.float8_e4m3fn)


def fill_state(state: dict[str, Any], parameter: torch.Tensor, moments: MomentsDtype) -> None:
    """Begin with moments of zero; those of fp8 have a scale each."""
    dtypes = moments if isinstance(moments, tuple) else (moments, moments)
    state["step"] = 0  # the group counts
    for name, dtype in zip(("exp_avg", "exp_avg_sq"), dtypes, strict=True):
        state[name] = torch.zeros_like(parameter, dtype=parameter.dtype if dtype is None else dtype)
    if any(dtype in _FP8 for dtype in dtypes):
        for name in ("exp_avg_scale", "exp_avg_sq_scale"):
            state[name] = torch.ones(1, dtype=parameter.dtype, device=parameter.device)


def corrected(lr: float, betas: tuple[float, float], step: int, bias_correction: bool) -> float:
    """The learning rate with Adam's correction of bias."""
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
    """Make one step with the learning rate `rate`; weights decay by `lr`."""
    first = parameters[0]

    def number(value: float) -> torch.Tensor:
        return torch.tensor([value], dtype=first.dtype).to(first.device)

    def of_states(name: str) -> list[torch.Tensor] | None:
        return [state[name] for state in states] if name in states[0] else None

    decay = 1.0 - weight_decay * lr
    torch.ops.hpu.optimizer_adamw(
        *(grads, parameters, of_states("exp_avg"), of_states("exp_avg_sq"), number(-rate)),
        *(*betas, eps),
        *((decay,) if is_lazy() else (number(decay), decay != 1.0)),
        *(of_states("exp_avg_scale"), of_states("exp_avg_sq_scale")),
    )
