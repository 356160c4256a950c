"""Momentum for gradients that include the learning rate, in one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.hpex.optimizers._steps import loss_of, marked, with_gradients

import torch


class FusedResourceApplyMomentum(torch.optim.Optimizer):
    """``buf = momentum * buf - grad; w += buf``; the first step is ``buf = grad; w += grad``.

    Parameters
    ----------
    params : iterable of torch.Tensor or dict
        Parameters or parameter groups.
    lr, weight_decay, nesterov
        No effect here; stored for a wrapper of this optimizer.
    momentum : float
        Factor of the moving sum.
    """

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

    @marked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Perform a step in each group, and return the loss of the closure."""
        loss = loss_of(closure)
        for group in self.param_groups:
            moving, grads = [], []
            sparse = "FusedResourceApplyMomentum does not support sparse gradients"
            for parameter in with_gradients(group, sparse):
                buffer = self.state[parameter].get("momentum_buffer")
                if buffer is None:
                    self.state[parameter]["momentum_buffer"] = parameter.grad.clone()  # type: ignore[union-attr]
                    parameter.add_(parameter.grad)  # type: ignore[arg-type]
                else:
                    moving += [parameter, buffer]
                    grads.append(parameter.grad)
            if grads:
                torch.ops.hpu.optimizer_resource_apply_momentum(moving, grads, group["momentum"])
        return loss
