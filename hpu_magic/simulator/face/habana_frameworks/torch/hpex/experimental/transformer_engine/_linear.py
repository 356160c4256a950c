"""Linear layer that computes its three matmuls in FP8."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from habana_frameworks.torch import _flags
from habana_frameworks.torch._once_differentiable import once_differentiable
from habana_frameworks.torch.hpex.experimental.transformer_engine import _scales
from habana_frameworks.torch.hpex.experimental.transformer_engine._module import Fp8Module
from habana_frameworks.torch.hpex.experimental.transformer_engine._uses import Use
from habana_frameworks.torch.hpex.experimental.transformer_engine.fp8 import get_fp8_te_sr
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import (
    DelayedScaling,
    Format,
)
from habana_frameworks.torch.hpex.experimental.transformer_engine.utils import (
    FP8BwdTensors,
    FP8FwdTensors,
)

import torch
from torch import nn
from torch.nn import functional

_INPUT, _WEIGHT = FP8FwdTensors.GEMM1_INPUT, FP8FwdTensors.GEMM1_WEIGHT
_GRADIENT = FP8BwdTensors.GRAD_OUTPUT1


@dataclass(frozen=True)
class _Cast:
    """An FP8 tensor with the inverse of its scale."""

    values: torch.Tensor
    inverse: torch.Tensor


def _cast(
    tensor: torch.Tensor, place: FP8FwdTensors, use: Use, measured: bool, for_backward: bool
) -> tuple[_Cast, _Cast, torch.Tensor]:
    """Cast an input or a weight to FP8.

    Returns the FP8 tensors for the matmuls in the forward and backward passes, and the largest
    magnitude if `measured` is true. Both passes share one tensor if they use the same dtype, or if
    `for_backward` is false.
    """
    hpu, dtypes = torch.ops.hpu, use.recipe.fp8_format
    factor, inverse = _scales.factor_of(use.scale[place], tensor.dtype)
    if use.hybrid_scale is None or not for_backward:
        values, amax = hpu.cast_to_fp8_v2(tensor, factor, False, measured, dtypes.forward)
        return _Cast(values, inverse), _Cast(values, inverse), amax
    wide_factor, wide_inverse = _scales.factor_of(use.hybrid_scale[place], tensor.dtype)
    wide, values, amax = hpu.cast_to_fp8_hybrid(tensor, wide_factor, factor, False, measured)
    return _Cast(values, inverse), _Cast(wide, wide_inverse), amax


def _cast_weight(
    module: Linear, weight: torch.Tensor, use: Use, for_backward: bool, is_first: bool | None
) -> tuple[_Cast, _Cast]:
    """Cast the weight to FP8, or return the tensor that an earlier forward pass stored."""
    kept = use.weight or (module.kept_weight if is_first is False else None)
    if kept is not None and kept[0] is use.recipe.fp8_format:
        casts, amax = kept[1], None
    else:
        for_backward |= is_first is not None and not module.minimize_memory
        *casts, amax = _cast(weight, _WEIGHT, use, use.measures_forward, for_backward)
        kept = use.recipe.fp8_format, casts
        if is_first is not None:
            module.kept_weight = kept
    if is_first is not None:
        use.weight = kept  # activation checkpointing may recompute the forward pass
    if use.measures_forward:
        module.note_forward(_WEIGHT, weight.abs().amax().float() if amax is None else amax)
    return casts[0], casts[1]


class _Product(torch.autograd.Function):
    """Computes ``inp @ weight.T + bias`` and its gradients with FP8 tensors."""

    @staticmethod
    @torch.autocast("hpu", enabled=False)
    def forward(
        ctx: Any,
        inp: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        module: Linear,
        use: Use,
        is_first_microbatch: bool | None,
    ) -> torch.Tensor:
        """Cast and multiply the operands, and save FP8 tensors for backward."""
        of_input, of_weight = (use.has_backward and each for each in ctx.needs_input_grad[:2])
        keeps_weight = of_input and not module.minimize_memory
        rows = inp.reshape(-1, inp.shape[-1])
        left, kept_left, amax = _cast(rows, _INPUT, use, use.measures_forward, of_weight)
        if use.measures_forward:
            module.note_forward(_INPUT, amax)
        right, kept_right = _cast_weight(module, weight, use, keeps_weight, is_first_microbatch)
        out = torch.ops.hpu.fp8_gemm_v2(
            *(left.values, False, right.values, True, None, use.out_dtype),
            *(left.inverse, right.inverse, bias),
        )
        ctx.save_for_backward(
            *((kept_left.values, kept_left.inverse) if of_weight else (None, None)),
            *((kept_right.values, kept_right.inverse) if keeps_weight else (None, None)),
            weight if of_input and module.minimize_memory else None,
        )
        ctx.module, ctx.use = module, use
        ctx.shape = inp.shape
        ctx.dtypes = [getattr(each, "dtype", None) for each in (inp, weight, bias)]
        return out.reshape(*inp.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable("Linear in FP8")
    @torch.autocast("hpu", enabled=False)
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of input, weight and bias."""
        module, use, saved = ctx.module, ctx.use, ctx.saved_tensors
        input_dtype, weight_dtype, bias_dtype = ctx.dtypes
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        scale = module.gradient_scales(use)[_GRADIENT]
        factor, inverse = _scales.factor_of(scale, grad.dtype)
        hpu, dtype = torch.ops.hpu, use.recipe.fp8_format.backward
        stochastic = get_fp8_te_sr(use.recipe, fprop=False)
        cast, amax = hpu.cast_to_fp8_v2(grad, factor, stochastic, use.measures, dtype)
        if use.measures:
            module.note_backward(_GRADIENT, amax, use)
        of_input = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            weight, weight_inverse = saved[2:4]
            if weight is None:
                _, cast_weight, _ = _cast(saved[4], _WEIGHT, use, False, True)
                weight, weight_inverse = cast_weight.values, cast_weight.inverse
            of_input = hpu.fp8_gemm_v2(
                *(cast, False, weight, False, None, input_dtype, inverse, weight_inverse)
            ).reshape(ctx.shape)
        if ctx.needs_input_grad[1]:
            inp, inp_inverse = saved[:2]
            of_weight = hpu.fp8_gemm_v2(
                *(cast, True, inp, False, None, weight_dtype, inverse, inp_inverse)
            )
        if ctx.needs_input_grad[2]:
            of_bias = grad.sum(0, dtype=torch.float32).to(bias_dtype)
        return of_input, of_weight, of_bias, None, None, None


def require_features(module: nn.Module, inp: torch.Tensor, features: int) -> None:
    """Raise ValueError unless the last dimension of the input has `features` elements."""
    if inp.dim() == 0 or inp.shape[-1] != features:
        raise ValueError(
            f"{type(module).__name__} expects {features} features in the last dimension, but its "
            f"input has shape {tuple(inp.shape)}."
        )


def _linear(
    module: Linear,
    inp: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    is_first_microbatch: bool | None,
) -> torch.Tensor:
    """Compute ``inp @ weight.T + bias`` in FP8 within `fp8_autocast`, else in `inp`'s dtype."""
    require_features(module, inp, weight.shape[1])
    use = module.begin_forward(inp, weight)
    if use is not None:
        return _Product.apply(inp, weight, bias, module, use, is_first_microbatch)
    if not torch.is_autocast_enabled(inp.device.type):
        weight = weight.to(inp.dtype)
        bias = None if bias is None else bias.to(inp.dtype)
    return functional.linear(inp, weight, bias)


class Linear(Fp8Module):
    """A linear layer that computes in FP8 within `fp8_autocast`; otherwise like `nn.Linear`.

    In FP8, inputs, weights and gradients are multiplied by their scales, rounded to the recipe's
    format, and then multiplied together. The output has autocast's dtype if autocast is enabled;
    otherwise, its dtype is `params_dtype`, or bfloat16 if that is None.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    params_dtype : torch.dtype, optional
        Dtype of the parameters; defaults to PyTorch's default dtype.
    skip_weight_param_allocation : bool
        Do not create parameters; assign weight and bias to the module, or pass them to `forward`.
    minimize_memory : bool
        Cast the weight again in the backward pass instead of storing the FP8 weight.
        ``PT_HPU_FP8_MINIMIZE_MEMORY=1`` sets this for all new layers.
    device : torch.device or str
        Device of the parameters.

    Raises
    ------
    ValueError
        The number of features or the parameter dtype is not supported.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        params_dtype: torch.dtype | None = None,
        skip_weight_param_allocation: bool = False,
        minimize_memory: bool = False,
        *,
        device: torch.device | str = "hpu",
    ) -> None:
        super().__init__(params_dtype)
        for name, features in (("in_features", in_features), ("out_features", out_features)):
            if features < 1:
                raise ValueError(f"{name}={features} is too small; use at least 1.")
        self.in_features = in_features
        self.out_features = out_features
        self.use_bias = bias
        self.minimize_memory = minimize_memory or _flags.is_on("PT_HPU_FP8_MINIMIZE_MEMORY")
        self.kept_weight: tuple[Format, list[_Cast]] | None = None
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if not skip_weight_param_allocation:
            like = nn.Linear(in_features, out_features, bias, device=device, dtype=params_dtype)
            self.weight, self.bias = like.weight, like.bias

    def metas(self, recipe: DelayedScaling) -> dict[str, type[IntEnum]]:
        """Map each entry of `fp8_meta` to an enum of the tensors whose scales it contains.

        If the card does not support matmuls of two FP8 dtypes, inputs and weights are also cast to
        the dtype of the gradients, and have scales for both dtypes.
        """
        formats = recipe.fp8_format
        one_type = formats.forward == formats.backward or _scales.products_take_two_formats()
        return super().metas(recipe) | ({} if one_type else {"scaling_hybrid": FP8FwdTensors})

    def forward(
        self,
        inp: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        is_first_microbatch: bool | None = None,
    ) -> torch.Tensor:
        """Apply the layer to an input of shape [..., in_features].

        Parameters
        ----------
        inp : torch.Tensor
        weight, bias : torch.Tensor, optional
            Used instead of the module's parameters.
        is_first_microbatch : bool, optional
            For microbatches that share a weight: True casts the weight to FP8 and stores the
            result, and False uses the stored result. After an optimizer step, pass True for the
            first two microbatches, because the second one uses the scale of the new weight. By
            default, each forward pass casts the weight.

        Raises
        ------
        ValueError
            The module has no weight, or the input has the wrong number of features.
        TypeError
            Within `fp8_autocast`, the input's dtype or device does not support casts to FP8.
        """
        weight = self.weight if weight is None else weight
        if weight is None:
            raise ValueError(
                "This Linear was created with skip_weight_param_allocation=True and has no weight; "
                "assign one to its weight attribute, or pass one to the call."
            )
        bias = self.bias if bias is None else bias
        return _linear(self, inp, weight, bias, is_first_microbatch)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load scales; the next forward pass casts the weight again."""
        self.kept_weight = None
        super().set_extra_state(state)

    def extra_repr(self) -> str:
        """Return the layer's sizes as text."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.use_bias}"
        )
