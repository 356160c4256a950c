"""Attention with FP8 matmuls."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

from habana_frameworks.torch._once_differentiable import once_differentiable
from habana_frameworks.torch.hpex.experimental.transformer_engine import _scales
from habana_frameworks.torch.hpex.experimental.transformer_engine._module import Fp8Module
from habana_frameworks.torch.hpex.experimental.transformer_engine._uses import Use
from habana_frameworks.torch.hpex.experimental.transformer_engine.fp8 import get_fp8_te_sr
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import DelayedScaling
from habana_frameworks.torch.hpex.experimental.transformer_engine.utils import (
    AttentionBwdTensors,
    AttentionFwdTensors,
)
from habana_frameworks.torch.hpex.kernels.FusedSDPA import FusedSDPA, Groups

import torch

_FWD, _BWD = AttentionFwdTensors, AttentionBwdTensors
_OPERANDS = (_FWD.QUERY, _FWD.KEY, _FWD.VALUE)


class _Attention(torch.autograd.Function):
    """Attention on FP8 operands, with a backward pass."""

    @staticmethod
    @torch.autocast("hpu", enabled=False)
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None,
        is_causal: bool,
        module: FusedAttention,
        use: Use,
    ) -> torch.Tensor:
        """Cast the operands, compute attention, and save the FP8 operands for backward."""
        hpu, dtype = torch.ops.hpu, use.recipe.fp8_format.forward
        groups = Groups(q, k)
        grouped = groups.queries(q), groups.keys(k), groups.keys(v)
        casts, inverses = [], []
        for place, tensor in zip(_OPERANDS, grouped, strict=True):
            factor, inverse = _scales.factor_of(use.scale[place], tensor.dtype)
            cast, amax = hpu.cast_to_fp8_v2(tensor, factor, False, use.measures_forward, dtype)
            if use.measures_forward:
                module.note_forward(place, amax)
            casts.append(cast)
            inverses.append(inverse.reshape(1))
        ctx.attend = groups.mask(mask), module.dropout, module.scale_of(q), is_causal, "none"
        ctx.scales = *inverses, use.scale[_FWD.PROBABILITIES].reshape(1)
        out, probabilities, kept, amax = _Attention._attend(ctx, casts, use.measures_forward)
        if use.measures_forward:
            module.note_forward(_FWD.PROBABILITIES, amax)
        if not use.has_backward:
            return groups.joined(out.to(use.out_dtype))
        # Recomputation cannot reproduce the dropout mask.
        recompute = module.enable_recompute and not module.dropout
        ctx.save_for_backward(*casts, *((None, None) if recompute else (probabilities, kept)), out)
        ctx.module, ctx.use, ctx.groups = module, use, groups
        ctx.shapes, ctx.dtypes = zip(*((each.shape, each.dtype) for each in (q, k, v)), strict=True)
        return groups.joined(out.to(use.out_dtype))

    @staticmethod
    def _attend(ctx: Any, casts: Any, measured: bool) -> tuple[torch.Tensor, ...]:
        return torch.ops.hpu.fp8_sdpa_fwd(
            *casts, *ctx.attend, *ctx.scales, None, None, measured, None, "left"
        )

    @staticmethod
    @once_differentiable("FusedAttention in FP8")
    @torch.autocast("hpu", enabled=False)
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of query, key and value."""
        module, use = ctx.module, ctx.use
        *casts, probabilities, kept, out = ctx.saved_tensors
        if probabilities is None:
            _, probabilities, kept, _ = _Attention._attend(ctx, casts, False)
        *inverses, of_probabilities = ctx.scales
        _, dropout, scale, is_causal, _ = ctx.attend
        grad = ctx.groups.queries(grads[0])
        of_gradients = module.gradient_scales(use)
        factor, inverse = _scales.factor_of(of_gradients[_BWD.GRAD_OUTPUT], grad.dtype)
        stochastic = get_fp8_te_sr(use.recipe, fprop=False)
        cast, amax = torch.ops.hpu.cast_to_fp8_v2(
            grad, factor, stochastic, use.measures, use.recipe.fp8_format.backward
        )
        *results, scores_amax = torch.ops.hpu.fp8_sdpa_bwd(
            *(cast, *casts, probabilities, kept, is_causal, dropout, scale, *inverses, None),
            *(inverse.reshape(1), None, of_probabilities),
            *(of_gradients[_BWD.GRAD_SCORES].reshape(1), use.measures, out),
        )
        if use.measures:
            module.note_backward(_BWD.GRAD_OUTPUT, amax, use)
            module.note_backward(_BWD.GRAD_SCORES, scores_amax, use)
        gradients = [
            each.reshape(shape).to(dtype)
            for each, shape, dtype in zip(results, ctx.shapes, ctx.dtypes, strict=True)
        ]
        return *gradients, None, None, None, None


class FusedAttention(Fp8Module):
    """Scaled dot-product attention, in FP8 within `fp8_autocast` if the card supports it.

    Training uses FP8 only with a causal mask. The card must support matmuls that combine the
    recipe's two formats; for ``HYBRID``, only the third generation does. In FP8, the output has
    autocast's dtype, or bfloat16 without autocast. Without FP8, the module computes attention in
    the query's dtype, like ``hpex.kernels.FusedSDPA``.

    Parameters
    ----------
    scale : float, optional
        Scaling factor for the scores; defaults to one over the square root of the number of
        channels.
    attention_dropout : float
        Fraction of the attention probabilities to drop during training.
    enable_recompute : bool
        Whether to recompute the attention probabilities in backward instead of storing them.

    Raises
    ------
    ValueError
        The dropout probability is not in [0, 1).
    """

    def __init__(
        self,
        scale: float | None = None,
        attention_dropout: float = 0.0,
        enable_recompute: bool = False,
    ) -> None:
        super().__init__(None)
        if not 0.0 <= attention_dropout < 1.0:
            raise ValueError(
                f"attention_dropout={attention_dropout!r} is out of range; use at least 0 and less "
                "than 1."
            )
        self.scale = scale
        self.attention_dropout = attention_dropout
        self.enable_recompute = enable_recompute

    def metas(self, recipe: DelayedScaling) -> dict[str, type[IntEnum]]:
        """Map each entry of `fp8_meta` to an enum of the tensors whose scales it contains."""
        return {"scaling_fwd": AttentionFwdTensors, "scaling_bwd": AttentionBwdTensors}

    def supports(self, recipe: DelayedScaling) -> bool:
        """Return whether the card supports matmuls that combine the recipe's two formats."""
        formats = recipe.fp8_format
        return formats.forward == formats.backward or _scales.products_take_two_formats()

    @property
    def dropout(self) -> float:
        """The current dropout probability, which is 0 in evaluation mode."""
        return self.attention_dropout if self.training else 0.0

    def scale_of(self, query: torch.Tensor) -> float:
        """Return the scaling factor for the scores."""
        return 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        softmax_mode: str = "None",
    ) -> torch.Tensor:
        """Compute attention on [batch, heads, length, channels]; see ``hpex.kernels.FusedSDPA``.

        Within `fp8_autocast`, raises TypeError for operands that cannot be cast to FP8.
        """
        operands = query, key, value
        if not self.training or (is_causal and attn_mask is None):
            use = self.begin_forward(*operands)
            if use is not None:
                return _Attention.apply(*operands, attn_mask, is_causal, self, use)
        return FusedSDPA.apply(
            *(*operands, attn_mask, self.dropout, is_causal, self.scale, softmax_mode),
            self.enable_recompute,
        )
