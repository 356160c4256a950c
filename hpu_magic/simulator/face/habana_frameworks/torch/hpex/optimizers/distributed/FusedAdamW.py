"""AdamW as a single operator; the caller passes the gradients to each step."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch.hpex.optimizers import _adamw_step
from habana_frameworks.torch.hpex.optimizers._steps import check_betas_and_epsilon, marked

import torch


class FusedAdamW:
    """AdamW for a list of parameters; `step` receives the gradients.

    The options are the same as those of ``hpex.optimizers.FusedAdamW``, but bias correction is
    always on. The list of parameters may be empty if `_allow_empty_param_list` is true.
    """

    def __init__(
        self,
        params: list[torch.Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        _allow_empty_param_list: bool = False,
        moments_dtype: _adamw_step.MomentsDtype = None,
    ) -> None:
        check_betas_and_epsilon(lr, betas, eps)
        if not params and not _allow_empty_param_list:
            raise ValueError("optimizer got an empty parameter list")
        self.defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        self.moments_dtype = moments_dtype
        self.state: dict[torch.Tensor, dict[str, Any]] = {}
        self.param_group = {"params": list(params)}

    def step_param(self, param: torch.Tensor, grad: torch.Tensor | None) -> None:
        """Raise RuntimeError, because updating a single parameter is not supported."""
        raise RuntimeError("This AdamW optimizer does not support step_param() as of now")

    @marked
    @torch.no_grad()
    def step(self, gradients: list[torch.Tensor | None]) -> None:
        """Perform a step; `gradients` contains a gradient or None for each parameter."""
        parameters = self.param_group["params"]
        if len(parameters) != len(gradients):
            raise ValueError(
                "the gradients passed in does not equal to the size of the parameters!"
                f"Params length: {len(parameters)}. Gradients length: {len(gradients)}"
            )
        pairs = [
            (parameter, gradient)
            for parameter, gradient in zip(parameters, gradients, strict=True)
            if gradient is not None
        ]
        if not pairs:
            return
        states = []
        for parameter, _ in pairs:
            state = self.state.setdefault(parameter, {})
            if not state:
                _adamw_step.fill_state(state, parameter, self.moments_dtype)
            state["step"] += 1
            states.append(state)
        lr, betas = self.defaults["lr"], self.defaults["betas"]
        _adamw_step.update(
            [parameter for parameter, _ in pairs],
            [gradient for _, gradient in pairs],
            states,
            _adamw_step.corrected(lr, betas, states[0]["step"], True),
            **self.defaults,
        )
