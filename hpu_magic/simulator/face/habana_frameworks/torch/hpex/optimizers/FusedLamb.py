"""LAMB, implemented with three operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.hpex.optimizers._steps import loss_of, marked, with_gradients

import torch


class FusedLamb(torch.optim.Optimizer):
    """Adam whose steps are multiplied by the LAMB trust ratio, ``norm(weight) / norm(step)``.

    `adam_w_mode`, `fused` and `set_grad_none` have no effect; weight decay is always decoupled.

    Parameters
    ----------
    params : iterable of torch.Tensor or dict
        Parameters or parameter groups.
    amsgrad : bool
        Not supported.
    grad_averaging : bool
        Whether to multiply gradients by 1 - beta1 when adding them to the moving average.
    max_grad_norm : float, optional
        Maximum total norm of all gradients; the value passed to the constructor applies to all
        groups.
    use_lamb : bool
        Whether to use the trust ratio even without weight decay.
    dtype : torch.dtype, optional
        Dtype in which to compute the total norm.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float | None = 1.0,
        use_lamb: bool = False,
        fused: bool = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant.")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults)
        self.adam_w_mode = adam_w_mode
        self.set_grad_none = set_grad_none
        self.use_lamb = use_lamb
        self.fused = fused
        self.dtype = dtype

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @marked
    @torch._disable_dynamo
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Perform a step for each group, and return the closure's loss."""
        loss = loss_of(closure)
        sparse = "Lamb does not support sparse gradients, consider SparseAdam instead."
        groups = [(group, with_gradients(group, sparse)) for group in self.param_groups]
        all_parameters = [parameter for _, parameters in groups for parameter in parameters]
        if not all_parameters:
            return loss
        clip = self._clip(all_parameters)
        for group, parameters in groups:
            if parameters:
                group["step"] = group.get("step", 0) + 1
                self._step(group, parameters, clip)
        return loss

    def _clip(self, parameters: list[torch.nn.Parameter]) -> torch.Tensor:
        """Return the factor by which to divide the gradients."""
        largest = self.defaults["max_grad_norm"]
        if largest is None:
            return torch.tensor([1.0]).to(parameters[0].device)
        grads = [parameter.grad for parameter in parameters]
        if self.dtype is not None:
            grads = [grad.to(self.dtype) for grad in grads]
        return torch.ops.hpu.optimizer_lamb_fused_norm(grads, largest)

    def _step(
        self, group: dict[str, Any], parameters: list[torch.nn.Parameter], clip: torch.Tensor
    ) -> None:
        device = parameters[0].device
        for parameter in parameters:
            for name in ("exp_avg", "exp_avg_sq"):
                if name not in self.state[parameter]:
                    self.state[parameter][name] = torch.zeros_like(parameter)
        moments = [
            [self.state[parameter][name] for parameter in parameters]
            for name in ("exp_avg", "exp_avg_sq")
        ]
        weight_norms, adam_norms = (
            [torch.zeros(1, device=device, dtype=each.dtype) for each in parameters]
            for _ in range(2)
        )
        steps = [torch.zeros_like(parameter) for parameter in parameters]
        corrections = [
            torch.tensor([1.0 - beta ** group["step"] if group["bias_correction"] else 1.0])
            for beta in group["betas"]
        ]
        torch.ops.hpu.optimizer_lamb_phase1(
            *([each.grad for each in parameters], parameters, *moments),
            *(weight_norms, adam_norms, steps, clip, int(group["grad_averaging"])),
            *(*group["betas"], group["eps"], *(each.to(device) for each in corrections)),
            group["weight_decay"],
        )
        torch.ops.hpu.optimizer_lamb_phase2(
            *(parameters, adam_norms, weight_norms, steps),
            *(torch.tensor([-group["lr"]]).to(device), group["weight_decay"], self.use_lamb),
        )
