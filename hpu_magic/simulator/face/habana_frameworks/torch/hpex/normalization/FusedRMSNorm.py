"""Differentiable root mean square layer normalization (RMSNorm)."""

from __future__ import annotations

from enum import Enum
from typing import Any

from habana_frameworks.torch._once_differentiable import once_differentiable

import torch


class RmsNormBwdMode(Enum):
    """How the backward kernel partitions its work; this does not affect results."""

    DEFAULT = 0
    STATIC_CASE_WIDTH_PARTITIONING = 1


class FusedRMSNorm(torch.autograd.Function):
    """``FusedRMSNorm.apply(data_in, gamma, eps, use_stages=True, bwd_mode=0, fast_math=False)``.

    The result is ``data_in * gamma / sqrt(mean(data_in**2) + eps)`` over the last dimension, in
    the dtype of both tensors, or in float32 if their dtypes differ. The last three arguments select
    the card's kernels and have no effect in the simulator.
    """

    @staticmethod
    def forward(
        ctx: Any,
        data_in: torch.Tensor,
        gamma: torch.Tensor,
        eps: float,
        use_stages: bool = True,
        bwd_mode: int = RmsNormBwdMode.DEFAULT.value,
        fast_math: bool = False,
    ) -> torch.Tensor:
        """Return the normalized tensor."""
        forward = torch.ops.hpu.rms_norm_fast if fast_math else torch.ops.hpu.rms_norm
        normalized, inverse_rms = forward(data_in, gamma, eps)
        ctx.save_for_backward(data_in, gamma, inverse_rms)
        ctx.kernel = use_stages, bwd_mode
        ctx.fast_math = fast_math
        return normalized

    @staticmethod
    @once_differentiable("FusedRMSNorm")
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of the data and of gamma."""
        hpu = torch.ops.hpu
        backward = hpu.rms_norm_fast_backward if ctx.fast_math else hpu.rms_norm_backward
        of_data, of_gamma = backward(grads[0], *ctx.saved_tensors, *ctx.kernel)
        return of_data, of_gamma, None, None, None, None
