"""Adagrad as a single operator, for lazy mode."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch.hpex.optimizers._steps import GroupOptimizer, move_to_parameters

import torch


class FusedAdagrad(GroupOptimizer):
    """Like ``torch.optim.Adagrad``, but the learning rate cannot change after construction."""

    _sparse_error = "Adagrad does not support sparse gradients, please consider SparseAdagrad"

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
        }
        names = {"lr": "learning rate", "eps": "epsilon value"}
        for name, value in defaults.items():
            if value < 0.0:
                raise ValueError(f"Invalid {names.get(name, f'{name} value')}: {value}")
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            move_to_parameters(group, "lr_t", "step_t")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, and initialize the sum of squared gradients of each parameter."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        device = group["params"][0].device
        group["lr_t"] = torch.tensor([group["lr"]], dtype=torch.float32).to(device)
        group["step_t"] = torch.zeros(1, dtype=torch.int32).to(device)
        for parameter in group["params"]:
            self.state[parameter]["sum"] = torch.full_like(
                parameter, group["initial_accumulator_value"], requires_grad=False
            )

    def _step(self, group: dict[str, Any], parameters: list[torch.nn.Parameter]) -> None:
        group["step_t"] += 1
        _hpex_C.fused_adagrad(
            [parameter.grad for parameter in parameters],
            parameters,
            [self.state[parameter]["sum"] for parameter in parameters],
            *(group["step_t"], group["lr_t"], group["weight_decay"], group["lr_decay"]),
            group["eps"],
        )
