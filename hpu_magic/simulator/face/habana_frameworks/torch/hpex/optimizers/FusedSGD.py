"""Stochastic gradient descent as a single operator."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch.hpex.optimizers._steps import GroupOptimizer, move_to_parameters
from habana_frameworks.torch.utils.internal import is_lazy

import torch


class FusedSGD(GroupOptimizer):
    """Like ``torch.optim.SGD``, but buffers start at 0, so dampening affects the first step."""

    _sparse_error = "FusedSGD does not support sparse gradients"

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        dampening: float = 0,
        nesterov: bool = False,
    ) -> None:
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0.0:
                raise ValueError(f"Invalid {name} value: {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "dampening": dampening,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            move_to_parameters(group, "epoch_num")

    def _step(self, group: dict[str, Any], parameters: list[torch.nn.Parameter]) -> None:
        device = parameters[0].device
        grads = [parameter.grad for parameter in parameters]
        lr = torch.tensor([group["lr"]], dtype=torch.float32).to(device)
        options = group["weight_decay"], group["dampening"], group["nesterov"]
        if not group["momentum"]:
            step = _hpex_C.optimizer_sgd if is_lazy() else torch.ops.hpu.optimizer_sgd
            decay, *rest = options
            step(grads, parameters, lr, decay, group["momentum"], *rest)
            return
        for parameter in parameters:
            if "momentum_buffer" not in self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        epoch = group.setdefault("epoch_num", torch.zeros(1, dtype=torch.int32).to(device))
        momentum = torch.tensor(group["momentum"], dtype=torch.float32).to(device)
        step = _hpex_C.optimizer_sgd_momentum if is_lazy() else torch.ops.hpu.optimizer_sgd_momentum
        step(grads, parameters, buffers, epoch, lr, momentum, *options)
