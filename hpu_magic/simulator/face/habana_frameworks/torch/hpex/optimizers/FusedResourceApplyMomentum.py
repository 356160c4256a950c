"""Momentum for gradients multiplied by the learning rate, as a single operator."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch.hpex.optimizers._steps import GroupOptimizer

import torch


class FusedResourceApplyMomentum(GroupOptimizer):
    """``buf = momentum * buf - grad; w += buf``; the first step is ``buf = grad; w += grad``.

    `lr`, `weight_decay` and `nesterov` are only read by an optimizer that wraps this one.
    """

    _sparse_error = "FusedResourceApplyMomentum does not support sparse gradients"

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults)

    def _step(self, group: dict[str, Any], parameters: list[torch.nn.Parameter]) -> None:
        moving, grads = [], []
        for parameter in parameters:
            buffer = self.state[parameter].get("momentum_buffer")
            if buffer is None:
                self.state[parameter]["momentum_buffer"] = parameter.grad.clone()
                parameter.add_(parameter.grad)
            else:
                moving += [parameter, buffer]
                grads.append(parameter.grad)
        if grads:
            torch.ops.hpu.optimizer_resource_apply_momentum(moving, grads, group["momentum"])
