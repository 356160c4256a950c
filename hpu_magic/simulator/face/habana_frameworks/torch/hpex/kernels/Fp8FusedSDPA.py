"""Scaled dot-product attention on FP8 operands."""

from __future__ import annotations

import math

from habana_frameworks.torch.hpex.kernels.FusedSDPA import (  # noqa: F401  the vendor's names
    Groups,
    check_valid_length,
    gqa_input_reshape_fwd,
    gqa_output_reshape,
    is_gqa,
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
    """Compute attention like `FusedSDPA`, but in FP8 if scales are passed, and without gradients.

    Query, key and value can be FP8. Each scale has one element: the ``d_scale`` arguments
    dequantize query, key, value and probabilities (s), and the ``q_scale`` arguments quantize
    probabilities and output (o).

    Parameters
    ----------
    is_amax_s, is_amax_o : bool
        Whether to measure the largest magnitude of the probabilities and of the output.
    recompute : bool, optional
        Whether to recompute the probabilities instead of storing them; defaults to
        ``torch.hpu.recompute_sdp_enabled()``. Recomputation is required to return the output in FP8
        or to measure it.

    Returns
    -------
    tuple of torch.Tensor
        The output, and the largest magnitudes of the probabilities and the output (one-element
        float32 tensors). The last magnitude is None if the probabilities are stored.
    """
    training = q.requires_grad or k.requires_grad or v.requires_grad
    assert is_causal or not training, "Fp8 FusedSDPA in trining only supports Triangular mask"
    check_valid_length(valid_seq_len, training, is_causal, attn_mask)
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
