"""Stochastic gradient descent in one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch.hpex.optimizers._steps import (
    loss_of,
    marked,
    move_to_parameters,
    with_gradients,
)
from habana_frameworks.torch.utils.internal import is_lazy

import torch


class FusedSGD(torch.optim.Optimizer):
    """``torch.optim.SGD`` with initial momentum 0, so that dampening changes the first step.

    Parameters
    ----------
    params : iterable of torch.Tensor or dict
        Parameters or parameter groups.
    lr, momentum, weight_decay, dampening, nesterov
        See ``torch.optim.SGD``.
    """

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
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
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

    @marked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Perform a step in each group, and return the loss of the closure."""
        loss = loss_of(closure)
        for group in self.param_groups:
            parameters = with_gradients(group, "FusedSGD does not support sparse gradients")
            if parameters:
                self._step(group, parameters)
        return loss

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
