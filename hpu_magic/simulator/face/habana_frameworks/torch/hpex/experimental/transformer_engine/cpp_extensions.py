"""Casts that use the scales stored for a module's tensors."""

from __future__ import annotations

from habana_frameworks.torch.hpex.experimental.transformer_engine._scales import note_amax
from habana_frameworks.torch.hpex.experimental.transformer_engine.utils import (
    FP8BwdTensors,
    FP8FwdTensors,
    FP8TensorMeta,
)

import torch

Place = FP8FwdTensors | FP8BwdTensors | int
_FORMATS = (torch.float8_e5m2, torch.float8_e4m3fn)


def cast_to_fp8(
    inp: torch.Tensor,
    fp8_meta_tensor: FP8TensorMeta,
    fp8_tensor: Place,
    otype: torch.dtype,
    stochastic_rounding: bool = False,
    measure_amax: bool = True,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiply a tensor by its scale and cast it to FP8.

    The inverse scale is also written to `fp8_meta_tensor`.

    Parameters
    ----------
    inp : torch.Tensor
        float32 or bfloat16.
    fp8_meta_tensor, fp8_tensor : FP8TensorMeta, int
        The scales, and the index of the tensor's scale.
    otype : torch.dtype
        ``torch.float8_e5m2`` or ``torch.float8_e4m3fn``; other dtypes raise ValueError.
    stochastic_rounding : bool
        Whether to round up or down at random, so that the result is unbiased, instead of rounding
        to nearest.
    measure_amax : bool
        Whether to write the largest magnitude to the history.
    out : torch.Tensor, optional
        Tensor to write the result to.
    """
    if otype not in _FORMATS:
        raise ValueError(
            f"otype={otype} is not an FP8 dtype; use torch.float8_e5m2 or torch.float8_e4m3fn."
        )
    scale = fp8_meta_tensor.scale[fp8_tensor]
    cast, amax = torch.ops.hpu.cast_to_fp8_v2(inp, scale, stochastic_rounding, measure_amax, otype)
    if measure_amax:
        note_amax(fp8_meta_tensor, int(fp8_tensor), amax)
    fp8_meta_tensor.scale_inv[fp8_tensor] = scale.reciprocal()
    return cast if out is None else out.copy_(cast)


def cast_from_fp8(
    inp: torch.Tensor,
    fp8_meta_tensor: FP8TensorMeta,
    fp8_tensor: Place,
    itype: torch.dtype,
    otype: torch.dtype,
) -> torch.Tensor:
    """Convert FP8 values to `otype` (float32 or bfloat16) and multiply by their inverse scale.

    Raises ValueError if the dtype of `inp` is not `itype`.
    """
    if inp.dtype != itype:
        raise ValueError(f"itype={itype} is not the dtype of the input, which is {inp.dtype}.")
    inverse = fp8_meta_tensor.scale_inv[fp8_tensor]
    return torch.ops.hpu.cast_from_fp8(inp, inverse, otype)
