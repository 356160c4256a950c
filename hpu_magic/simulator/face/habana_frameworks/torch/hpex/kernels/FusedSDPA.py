"""Differentiable scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from habana_frameworks.torch._once_differentiable import once_differentiable
from habana_frameworks.torch.hpex.kernels._window import share_next_to_sink, windowed

import torch

Results = torch.Tensor | tuple[torch.Tensor, ...]


class Groups:
    """Groups the query heads that share a KV head, by adding a group dimension to the operands.

    If there are as many query heads as KV heads, the methods return the tensors unchanged.
    """

    def __init__(self, q: torch.Tensor, k: torch.Tensor) -> None:
        heads = k.shape[1] if q.dim() == k.dim() == 4 else 0
        self._heads = heads if heads > 1 and q.shape[1] != heads else 0
        self._query_heads = q.shape[1] if self._heads else 0

    @property
    def are_several(self) -> bool:
        """Whether several query heads share a KV head."""
        return bool(self._heads)

    def queries(self, q: torch.Tensor) -> torch.Tensor:
        """Reshape [batch, query heads, ...] to [batch, heads, group, ...]."""
        if not self._heads:
            return q
        if self._query_heads % self._heads:
            raise ValueError(
                f"FusedSDPA has {self._query_heads} query heads and {self._heads} KV heads; use a "
                "multiple of the number of KV heads."
            )
        return q.reshape(q.shape[0], self._heads, -1, *q.shape[2:])

    def keys(self, k: torch.Tensor) -> torch.Tensor:
        """Reshape [batch, heads, ...] to [batch, heads, 1, ...]."""
        return k.unsqueeze(2) if self._heads else k

    def mask(self, mask: torch.Tensor | None) -> torch.Tensor | None:
        """Group the query heads of a mask, unless all heads share the mask."""
        if mask is None or mask.dim() != 4 or not self._heads:
            return mask
        return self.queries(mask) if mask.shape[1] == self._query_heads else mask.unsqueeze(2)

    def joined(self, result: torch.Tensor) -> torch.Tensor:
        """Reshape [batch, heads, group, ...] to [batch, query heads, ...]."""
        return result.flatten(1, 2) if self._heads and result.dim() == 5 else result


def is_gqa(q: torch.Tensor, k: torch.Tensor) -> bool:
    """Return whether several query heads share a KV head and need `gqa_input_reshape_fwd`."""
    return Groups(q, k).are_several


def gqa_input_reshape_fwd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attention_mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Reshape the attention operands so that a group dimension follows the KV heads.

    Raises ValueError if the number of query heads is not a multiple of the number of KV heads.
    """
    groups = Groups(q, k)
    return groups.queries(q), groups.keys(k), groups.keys(v), groups.mask(attention_mask)


def gqa_output_reshape(tensor: torch.Tensor) -> torch.Tensor:
    """Reshape the attention output for reshaped operands to [batch, query heads, ...]."""
    return tensor.flatten(1, 2)


def check_valid_length(
    valid_seq_len: torch.Tensor | None,
    training: bool,
    is_causal: bool,
    attn_mask: torch.Tensor | None,
) -> None:
    """Raise AssertionError if `valid_seq_len` is incompatible with the other options."""
    assert valid_seq_len is None or (not training and is_causal and attn_mask is None), (
        "Valid sequence length is supported only in inference with is_causal(triangular) mask case"
    )


def _check_training(training: bool, probabilities: bool, fast: bool, is_causal: bool) -> None:
    assert not (probabilities and training), (
        "return_attn_probs is supported only for inference mode"
    )
    assert not (training and fast) or is_causal, (
        "Optimized softmax mode is supported in recompute training mode only in "
        "causal(triangular) mask case"
    )


class FusedSDPA(torch.autograd.Function):
    """``FusedSDPA.apply(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None)``.

    The remaining positional arguments are ``softmax_mode="None"``, ``recompute_mode=None``,
    ``valid_seq_len=None``, ``seq_padding_type="left"``, ``return_dropout_mask=False``,
    ``return_attn_probs=False``, ``window_size=(-1, -1)`` and ``sink=None``. Query, key and value
    have the shape [batch, heads, length, channels] or [batch, length, channels]; several query
    heads can share a KV head. The output is the same as that of PyTorch's
    ``scaled_dot_product_attention``, with the causal mask aligned to the upper left corner. A call
    counts as training if an operand requires a gradient. Two options work only in inference:
    ``window_size`` is the number of visible keys before and after a query's position (-1 for all),
    and ``sink`` is an additional score per query head, for a key whose value is zero.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        softmax_mode: str = "None",
        recompute_mode: bool | None = None,
        valid_seq_len: torch.Tensor | None = None,
        seq_padding_type: str = "left",
        return_dropout_mask: bool = False,
        return_attn_probs: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        sink: torch.Tensor | None = None,
    ) -> Results:
        """Return the output, followed by the probabilities and the dropout mask if requested.

        Raises
        ------
        AssertionError
            The options are incompatible. The message is the same as the vendor's.
        ValueError
            A window or a sink is passed in training, or the number of sinks differs from the number
            of query heads.
        """
        training = q.requires_grad or k.requires_grad or v.requires_grad
        softmax_mode = softmax_mode.lower()
        recompute = torch.hpu.recompute_sdp_enabled() if recompute_mode is None else recompute_mode
        recompute = recompute and not return_attn_probs
        _check_training(
            training, return_attn_probs, recompute and softmax_mode == "fast", is_causal
        )
        check_valid_length(valid_seq_len, training, is_causal, attn_mask)
        assert not (return_dropout_mask and recompute), (
            "Return_dropout_mask is not supported in recompute mode"
        )
        if training and (sink is not None or max(window_size) >= 0):
            raise ValueError(
                "FusedSDPA supports window_size and sink only in inference, but q, k or v requires "
                "a gradient; call it under torch.no_grad(), with tensors that do not require "
                "gradients."
            )
        groups = Groups(q, k)
        operands = groups.queries(q), groups.keys(k), groups.keys(v)
        mask = groups.mask(windowed(attn_mask, q, k, window_size))
        factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
        padding = valid_seq_len, seq_padding_type.lower()
        ctx.options = is_causal, dropout_p, factor
        ctx.softmax_mode = softmax_mode
        ctx.recompute = recompute
        ctx.groups = groups

        def recomputed(p: float, with_sums: bool) -> tuple[torch.Tensor, ...]:
            return torch.ops.hpu.sdpa_recomp_fwd(
                *operands, mask, p, factor, is_causal, with_sums, softmax_mode, *padding
            )

        if recompute:
            out, *of_rows = recomputed(dropout_p, training or sink is not None)
            if sink is not None:
                out = (out * share_next_to_sink(sink, *of_rows[:2])).to(out.dtype)
            ctx.save_for_backward(*operands, mask, *of_rows, out)
            return groups.joined(out)
        out, probabilities, kept = torch.ops.hpu.sdpa_fwd(
            *operands, mask, dropout_p, factor, is_causal, softmax_mode, *padding
        )
        if sink is not None:
            share = share_next_to_sink(sink, *recomputed(0.0, True)[1:3])
            out, probabilities = ((each * share).to(each.dtype) for each in (out, probabilities))
        ctx.save_for_backward(*operands, probabilities, kept, out)
        results = [groups.joined(out)]
        if return_attn_probs:
            results.append(groups.joined(probabilities))
        if return_dropout_mask:
            results.append(groups.joined(kept))
            ctx.mark_non_differentiable(results[-1])
        return tuple(results) if len(results) > 1 else results[0]

    @staticmethod
    @once_differentiable("FusedSDPA")
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of query, key and value."""
        grad = ctx.groups.queries(grads[0])
        if ctx.recompute:
            q, k, v, mask, largest, inverse_sum, seed, out = ctx.saved_tensors
            of_q, of_k, of_v = torch.ops.hpu.sdpa_recomp_bwd(
                *(grad, q, k, v, mask, largest, inverse_sum, seed),
                *(*ctx.options, ctx.softmax_mode, out),
            )
        else:
            q, k, v, probabilities, kept, out = ctx.saved_tensors
            of_q, of_k, of_v = torch.ops.hpu.sdpa_bwd(
                grad, q, k, v, probabilities, kept, *ctx.options, out
            )
        joined = ctx.groups.joined
        return joined(of_q), joined(of_k), joined(of_v), *[None] * 12
