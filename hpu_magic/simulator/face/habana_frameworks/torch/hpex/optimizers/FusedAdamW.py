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

    Unlike ``torch.optim.AdamW``, epsilon is added to the square root of the second moment before
    the bias correction.

    Parameters
    ----------
    params : iterable of torch.Tensor or dict
        Parameters or parameter groups.
    lr, betas, eps, weight_decay
        See ``torch.optim.AdamW``; the defaults differ.
    bias_correction : bool
        Correct the bias of moments that start at zero.
    moments_dtype : torch.dtype or tuple of torch.dtype, optional
        Type of both moments or of each, by default the parameter's. Moments in fp8 have scales.
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
        """Load a saved state, and convert moments to this optimizer's types."""
        saved: dict[str, Any] = {}
        # Other hooks run earlier before loading and later after loading, so that they can change
        # the state and see the result.
        before = self.register_load_state_dict_pre_hook(lambda _, state: saved.update(state))
        after = self.register_load_state_dict_post_hook(
            lambda _: self._load_moments(saved), prepend=True
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _load_moments(self, saved: dict[str, Any]) -> None:
        keys = (key for group in saved["param_groups"] for key in group["params"])
        parameters = (each for group in self.param_groups for each in group["params"])
        for key, parameter in zip(keys, parameters, strict=True):
            if key in saved["state"]:
                _adamw_step.load_moments(
                    self.state[parameter], saved["state"][key], parameter, self.moments_dtype
                )

    @marked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Perform a step in each group, and return the loss of the closure."""
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
