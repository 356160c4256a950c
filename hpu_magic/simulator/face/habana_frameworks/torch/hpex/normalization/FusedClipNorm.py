"""Clip gradients by their total norm."""

from __future__ import annotations

from collections.abc import Iterable

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch._flags import is_lazy

import torch

_NORM_TYPE = 2.0


class FusedClipNorm:
    """Clips gradients on the device by their 2-norm, like ``torch.nn.utils.clip_grad_norm_``.

    `parameters` is ignored; pass the parameters to `clip_norm`.
    """

    def __init__(self, parameters: Iterable[torch.Tensor] | torch.Tensor, max_norm: float) -> None:
        self.max_norm_t = torch.tensor([float(max_norm)]).to("hpu")

    def clip_norm(self, parameters: Iterable[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Scale gradients in place to a norm of at most `max_norm`, and return the original norm.

        The norm is a one-element tensor on the device, with the dtype of the first parameter, or 0
        on the CPU if no parameter has a gradient.
        """
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        grads = [parameter.grad for parameter in listed if parameter.grad is not None]
        if not grads:
            return torch.tensor(0.0)
        norm = torch.empty(1, dtype=listed[0].dtype, device="hpu")
        clip = _hpex_C.fused_norm if is_lazy() else torch.ops.hpu.fused_clip_norm
        return clip([*grads, norm], self.max_norm_t, _NORM_TYPE)
