"""FP8 cast functions, which libraries import from this module."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def cast_to_fp8_v2(
    input: torch.Tensor,
    scale: torch.Tensor | float | Sequence[float] | None = None,
    stochastic_rounding: bool = False,
    is_amax: bool = False,
    dtype: torch.dtype | None = None,
    scale_shape: Sequence[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Multiply by `scale` and cast to `dtype`; return the result and the largest magnitude.

    The largest magnitude of `input` is only measured if `is_amax` is true.
    """
    return torch.ops.hpu.cast_to_fp8_v2(
        input, scale, stochastic_rounding, is_amax, dtype, scale_shape
    )
