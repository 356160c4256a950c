"""Scaled dot-product attention over 8-bit floating-point operands."""

from __future__ import annotations

import math

from habana_frameworks.torch.hpex.kernels.FusedSDPA import (
    Groups,
)
from habana_frameworks.torch.hpex.kernels.FusedSDPA import (
    gqa_input_reshape_fwd as gqa_input_reshape_fwd,
)
from habana_frameworks.torch.hpex.kernels.FusedSDPA import (
    gqa_output_reshape as gqa_output_reshape,
)
from habana_frameworks.torch.hpex.kernels.FusedSDPA import (
    is_gqa as is_gqa,
)

import torch

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def fp8_fused_sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    softmax_mode: str = "None",
    d_scale_q: torch.Tensor | None = None,
    d_scale_k: torch.Tensor | None = None,
    d_scale_v: torch.Tensor | None = None,
    q_scale_s: torch.Tensor | None = None,
    q_scale_o: torch.Tensor | None = None,
    d_scale_s: torch.Tensor | None = None,
    is_amax_s: bool = False,
    is_amax_o: bool = False,
    valid_seq_len: torch.Tensor | None = None,
    seq_padding_type: str = "left",
    recompute: bool | None = None,
) -> Outputs:
    """Attend as `FusedSDPA` does, through 8 bits where there are scales; without a gradient.

    Parameters
    ----------
    q, k, v, attn_mask, dropout_p, is_causal, scale, softmax_mode, valid_seq_len, seq_padding_type
        As those of `FusedSDPA`; query, key and value may be of fp8.
    d_scale_q, d_scale_k, d_scale_v, d_scale_s : torch.Tensor, optional
        What takes operands and probabilities back: one element each.
    q_scale_s, q_scale_o : torch.Tensor, optional
        What probabilities and result are multiplied by before they become fp8.
    is_amax_s, is_amax_o : bool
        Measure the largest magnitude of the probabilities, and of the result.
    recompute : bool, optional
        Keep no probabilities, by default as ``torch.hpu.recompute_sdp_enabled()`` says; only this
        form gives a result of fp8 and measures it.

    Returns
    -------
    tuple of torch.Tensor
        The result and the two magnitudes, float32 of one element; None for the last where the
        probabilities are kept.
    """
    training = q.requires_grad or k.requires_grad or v.requires_grad
    assert is_causal or not training, "Fp8 FusedSDPA in trining only supports Triangular mask"
    assert valid_seq_len is None or (not training and is_causal and attn_mask is None), (
        "Valid sequence length is supported only in inference with is_causal(triangular) mask case"
    )
    groups = Groups(q, k)
    attend = (
        *(groups.queries(q), groups.keys(k), groups.keys(v), groups.mask(attn_mask), dropout_p),
        *(1.0 / math.sqrt(q.shape[-1]) if scale is None else scale, is_causal),
    )
    scales = d_scale_q, d_scale_k, d_scale_v, q_scale_s, q_scale_o, d_scale_s
    padding = valid_seq_len, seq_padding_type.lower()
    mode = softmax_mode.lower()
    if torch.hpu.recompute_sdp_enabled() if recompute is None else recompute:
        out, _, _, _, amax_s, amax_o = torch.ops.hpu.fp8_sdpa_recomp_fwd(
            *attend, training, mode, *scales, is_amax_s, is_amax_o, *padding
        )
        return groups.joined(out), amax_s, amax_o
    out, _, _, amax_s = torch.ops.hpu.fp8_sdpa_fwd(*attend, mode, *scales, is_amax_s, *padding)
    return groups.joined(out), amax_s, None
