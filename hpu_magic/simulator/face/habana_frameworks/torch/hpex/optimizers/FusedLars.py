"""Layer-wise adaptive rate scaling (LARS) as a single operator that wraps another optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch.hpex.optimizers._steps import loss_of, marked
from habana_frameworks.torch.utils.internal import is_lazy

import torch


class FusedLars(torch.optim.Optimizer):
    """Multiplies gradients by the learning rate and the LARS trust ratio, then steps an optimizer.

    Use it with ``FusedResourceApplyMomentum``, which expects gradients that are already multiplied
    by the learning rate. FusedLars also applies the weight decay of the wrapped optimizer. For each
    parameter in a group, `skip_mask` specifies whether to use the trust ratio; otherwise, the
    gradient is only multiplied by the learning rate. The trust ratio is multiplied by `eeta`, and
    `eps` is added to its denominator.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        skip_mask: Any,
        eeta: float = 0.001,
        eps: float = 1e-8,
    ) -> None:
        self.__setstate__({"optim": optimizer, "skip_mask": skip_mask, "eeta": eeta, "eps": eps})

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("optim", "skip_mask", "eeta", "eps")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        shared = {
            name: getattr(state["optim"], name) for name in ("defaults", "state", "param_groups")
        }
        super().__setstate__(state | shared)  # also sets up the hooks

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optim!r})"

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped optimizer."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of the wrapped optimizer."""
        self.optim.load_state_dict(state_dict)
        self.state, self.param_groups = self.optim.state, self.optim.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer."""
        self.optim.add_param_group(param_group)

    @marked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Scale the gradients, call the wrapped optimizer, and return the closure's loss."""
        loss = loss_of(closure)
        decays = [group.get("weight_decay", 0) for group in self.param_groups]
        for group, decay in zip(self.param_groups, decays, strict=True):
            self._scale(group, decay)
            group["weight_decay"] = 0
        try:
            self.optim.step()
        finally:
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["weight_decay"] = decay
        return loss

    def _scale(self, group: dict[str, Any], decay: float) -> None:
        masked = [
            (parameter, int(bool(mask)))
            for parameter, mask in zip(group["params"], self.skip_mask, strict=False)
            if parameter.grad is not None
        ]
        if not masked:
            return
        parameters = [parameter for parameter, _ in masked]
        lr = torch.tensor([group["lr"]], dtype=torch.float32).to(parameters[0].device)
        scale = _hpex_C.fused_lars if is_lazy() else torch.ops.hpu.optimizer_lars
        grads = [parameter.grad for parameter in parameters]
        scale(parameters, grads, [mask for _, mask in masked], self.eeta, decay, self.eps, lr)
