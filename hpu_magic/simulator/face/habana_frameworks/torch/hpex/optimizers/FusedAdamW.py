"""AdamW as a single operator."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch.hpex.optimizers import _adamw_step
from habana_frameworks.torch.hpex.optimizers._steps import (
    GroupOptimizer,
    check_betas_and_epsilon,
)

import torch


class FusedAdamW(GroupOptimizer):
    """Adam with decoupled weight decay.

    Unlike ``torch.optim.AdamW``, it adds epsilon to the square root of the second moment before
    bias correction. The options not listed here are the same as those of ``torch.optim.AdamW``, but
    have different defaults.

    Parameters
    ----------
    params : iterable of torch.Tensor or dict
        Parameters or parameter groups.
    bias_correction : bool
        Whether to correct the bias of moments that start at zero.
    moments_dtype : torch.dtype or tuple of torch.dtype, optional
        Dtype of both moments, or one dtype for each; defaults to the dtype of the parameter. FP8
        moments have scales.
    """

    _sparse_error = "Adam does not support sparse gradients, please consider SparseAdam"

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
                print("FusedAdamW: its value is used for 'bias_correction'.")
                group["bias_correction"] = group.pop("correct_bias")
            group.setdefault("bias_correction", True)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state, and convert its moments to this optimizer's dtypes."""
        saved: dict[str, Any] = {}
        # Other pre-hooks must run before this one, because they may change the state. Other
        # post-hooks must run after the moments are loaded, because they expect the final state.
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

    def _step(self, group: dict[str, Any], parameters: list[torch.nn.Parameter]) -> None:
        group["step"] = group.get("step", 0) + 1
        for parameter in parameters:
            if not self.state[parameter]:
                _adamw_step.fill_state(self.state[parameter], parameter, self.moments_dtype)
        _adamw_step.update(
            parameters,
            [parameter.grad for parameter in parameters],
            [self.state[parameter] for parameter in parameters],
            _adamw_step.corrected(
                group["lr"], group["betas"], group["step"], group["bias_correction"]
            ),
            **{name: group[name] for name in ("lr", "betas", "eps", "weight_decay")},
        )
