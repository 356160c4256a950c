"""AdamW in one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.hpex.optimizers import _adamw_step
from habana_frameworks.torch.hpex.optimizers._steps import (
    check_betas_and_epsilon,
    loss_of,
    marked,
    with_gradients,
)

import torch


class FusedAdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay.

    Epsilon is added to the root of the second moment before the correction of bias, other than in
    ``torch.optim.AdamW``.

    Parameters
    ----------
    params : iterable of torch.Tensor or dict
        Parameters or groups of them.
    lr, betas, eps, weight_decay
        As those of ``torch.optim.AdamW``, with other defaults.
    bias_correction : bool
        Correct the bias of moments that begin with zeros.
    moments_dtype : torch.dtype or tuple of torch.dtype, optional
        Type of both moments, or of each: by default the parameter's. Those of fp8 have a scale.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        moments_dtype: _adamw_step.MomentsDtype = None,
    ) -> None:
        check_betas_and_epsilon(lr, betas, eps)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
        }
        super().__init__(params, defaults)
        self.moments_dtype = moments_dtype

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "moments_dtype": self.moments_dtype}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            if "correct_bias" in group:
                print("FusedAdamW: the key 'correct_bias' of a group is deprecated.")
                print("FusedAdamW: it is taken for 'bias_correction'.")
                group["bias_correction"] = group.pop("correct_bias")
            group.setdefault("bias_correction", True)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state; moments of another type than this optimizer's are converted."""
        read: dict[str, Any] = {}
        # The last hook before loading is given what is loaded, and the first one after it comes
        # before those that may look at it.
        before = self.register_load_state_dict_pre_hook(lambda _, given: read.update(given))
        after = self.register_load_state_dict_post_hook(
            lambda _: self._load_moments(read), prepend=True
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _load_moments(self, read: dict[str, Any]) -> None:
        saved = (key for group in read["param_groups"] for key in group["params"])
        parameters = (each for group in self.param_groups for each in group["params"])
        for key, parameter in zip(saved, parameters, strict=True):
            if key in read["state"]:
                _adamw_step.load_moments(
                    self.state[parameter], read["state"][key], parameter, self.moments_dtype
                )

    @marked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Make a step in each group, and return the closure's loss."""
        loss = loss_of(closure)
        for group in self.param_groups:
            parameters = with_gradients(
                group, "Adam does not support sparse gradients, please consider SparseAdam"
            )
            if not parameters:
                continue
            group["step"] = group.get("step", 0) + 1
            for parameter in parameters:
                if not self.state[parameter]:
                    _adamw_step.fill_state(self.state[parameter], parameter, self.moments_dtype)
            _adamw_step.update(
                list(parameters),
                [parameter.grad for parameter in parameters],  # type: ignore[misc]
                [self.state[parameter] for parameter in parameters],
                _adamw_step.corrected(
                    group["lr"], group["betas"], group["step"], group["bias_correction"]
                ),
                **{name: group[name] for name in ("lr", "betas", "eps", "weight_decay")},
            )
        return loss
