"""Reference implementation of scaled dot-product attention with PyTorch's operators."""

from __future__ import annotations

import math
from typing import Any

from habana_frameworks.torch._once_differentiable import once_differentiable

import torch


def _probabilities(q: torch.Tensor, k: torch.Tensor, scale: float, is_causal: bool) -> torch.Tensor:
    """Return the softmax of the scores, for operands of shape [heads, length, channels]."""
    scores = torch.matmul(q, k.transpose(-2, -1))
    if not is_causal:
        return torch.softmax(scores * scale, -1)
    return torch.ops.hpu.scaled_triangular_softmax_retain(scores, scale)[0]


class PySDPA(torch.autograd.Function):
    """``PySDPA.apply(q, k, v, is_causal=False, with_slice=False)`` for [batch, heads, length, E].

    If `with_slice` is true, it computes one head at a time, so that only one head's scores are in
    memory.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        is_causal: bool = False,
        with_slice: bool = False,
    ) -> torch.Tensor:
        """Return the attention output."""
        ctx.save_for_backward(q, k, v)
        ctx.is_causal = is_causal
        ctx.scale = 1.0 / math.sqrt(q.shape[-1])
        heads = [each.flatten(0, -3) for each in (q, k, v)]
        slices = zip(*(each.split(1) for each in heads), strict=True) if with_slice else [heads]
        outs = [
            torch.matmul(_probabilities(query, key, ctx.scale, is_causal), value)
            for query, key, value in slices
        ]
        return torch.cat(outs).reshape(*q.shape[:-1], v.shape[-1])

    @staticmethod
    @once_differentiable("PySDPA")
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of query, key and value."""
        q, k, v = ctx.saved_tensors
        assert q.dim() == 4, " Currently support only 4D"
        query, key, value, grad = (each.flatten(0, 1) for each in (q, k, v, grads[0]))
        weights = _probabilities(query, key, ctx.scale, ctx.is_causal)
        of_weights = torch.matmul(grad, value.transpose(-2, -1))
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype) * ctx.scale
        return (
            torch.matmul(of_scores, key).reshape(q.shape),
            torch.matmul(of_scores.transpose(-2, -1), query).reshape(k.shape),
            torch.matmul(weights.transpose(-2, -1), grad).reshape(v.shape),
            *(None, None),
        )


class PySDPAHinted(PySDPA):
    """`PySDPA` that slices by default; on a card, the compiler keeps the order of the slices."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        is_causal: bool = False,
        with_slice: bool = True,
    ) -> torch.Tensor:
        """Return the attention output."""
        return PySDPA.forward(ctx, q, k, v, is_causal, with_slice)
