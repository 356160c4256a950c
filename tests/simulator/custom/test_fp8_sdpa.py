"""Test FP8 attention against float64 and the vendor's order of casts.

Tolerances: bfloat16 results 2e-2, FP8 results an additional step of 1/8.
"""

from functools import partial

import pytest
import torch
from attention_reference import attention
from habana_frameworks.torch.hpex.kernels import fp8_fused_sdpa
from habana_frameworks.torch.hpex.kernels.Fp8FusedSDPA import (
    gqa_input_reshape_fwd,
    gqa_output_reshape,
    is_gqa,
)
from in_modes import run
from operator_tensors import E4M3, RECOMPUTE, on_device, random_tensors

hpu_ops = torch.ops.hpu
B, H, L, E = 2, 4, 6, 8
samples = partial(random_tensors, dtype=torch.bfloat16)


def reference(q, k, v, *, d_q=1.0, d_k=1.0, d_v=1.0, q_s=None, d_s=None, causal=False):
    q, k, v = q.double() * d_q, k.double() * d_k, v.double() * d_v
    result, exact = attention(q, k, v, is_causal=causal)
    if q_s is None:
        return result, exact
    weights = (exact * q_s).float().to(E4M3).double()
    return weights @ v * (1 / q_s if d_s is None else d_s), exact


def number(value):
    return torch.tensor([value]).to("hpu")


@RECOMPUTE
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_measurement_returns_the_result_and_the_largest_magnitudes(dtype, recompute):
    q, k, v = samples((B, H, L, E), (B, 2, L, E), (B, 2, L, E), dtype=dtype)
    expected, exact = reference(q, k, v)
    out, amax_s, amax_o = fp8_fused_sdpa(
        *(each.to("hpu") for each in (q, k, v)),
        is_amax_s=True,
        is_amax_o=True,
        recompute=recompute,
    )
    assert (out.dtype, out.shape) == (dtype, q.shape)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-2, atol=2e-2)
    assert (amax_s.dtype, amax_s.shape) == (torch.float32, (1,))
    assert amax_s.item() == pytest.approx(exact.max().item(), rel=1e-5)
    if recompute:
        assert amax_o.item() == pytest.approx(expected.abs().max().item(), rel=1e-5)
    else:
        assert amax_o is None


@RECOMPUTE
@pytest.mark.parametrize("d_s", [None, 1 / 64])
def test_operands_and_probabilities_are_quantized(recompute, d_s):
    q, k, v = samples((B, H, L, E), (B, H, L, E), (B, H, L, E), dtype=E4M3)
    factors = {"d_q": 0.5, "d_k": 0.25, "d_v": 2.0, "q_s": 64.0, "d_s": d_s, "causal": True}
    expected, _ = reference(q, k, v, **factors)
    names = {"d_q": "d_scale_q", "d_k": "d_scale_k", "d_v": "d_scale_v", "q_s": "q_scale_s"}
    scales = {name: number(factors[short]) for short, name in names.items()}
    if d_s is not None:
        scales["d_scale_s"] = number(d_s)
    arguments = on_device((q, k, v))
    out, _, _ = fp8_fused_sdpa(*arguments, is_causal=True, recompute=recompute, **scales)
    assert (out.dtype, out.shape) == (torch.bfloat16, q.shape)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=2e-2, atol=2e-2)
    if recompute:
        small, _, _ = fp8_fused_sdpa(
            *arguments, is_causal=True, recompute=True, q_scale_o=number(4.0), **scales
        )
        assert small.dtype == E4M3
        torch.testing.assert_close(small.cpu().double(), expected * 4, rtol=0.125, atol=0.1)


@pytest.mark.parametrize("window", [(-1, -1), (2, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("heads", [H, 2])
def test_windows_hide_keys_and_sinks_take_a_share(heads, window):
    q, k, v = samples((B, H, L, E), (B, heads, L, E), (B, heads, L, E), dtype=torch.float32)
    sinks = torch.tensor([-3.0, 0.0, 2.0, 30.0])
    arguments = *on_device((q, k, v)), None
    assert is_gqa(q, k) == (heads == 2)
    out = hpu_ops.fp8_sdpa_recomp_fwd(
        *(gqa_input_reshape_fwd(*arguments) if heads == 2 else arguments),
        *(0.0, E**-0.5, False, False, "None", *[None] * 6, False, False, None, "right"),
        *(window, sinks.to("hpu")),
    )[0]
    out = gqa_output_reshape(out) if heads == 2 else out
    expected, _ = attention(q, k, v, window=window, sink=sinks)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-5, atol=1e-5)


def test_query_without_keys_in_its_window_is_zero():
    q, k = (each.to("hpu") for each in samples((B, H, L, E), (B, H, 2, E)))
    ends = False, False, None, "right", (0, 0), None
    out = hpu_ops.fp8_sdpa_recomp_fwd(
        q, k, k, None, 0.0, 1.0, False, False, "None", *[None] * 6, *ends
    )[0].cpu()
    assert out[:, :, 2:].count_nonzero() == 0
    assert torch.equal(out[:, :, :2], k.cpu())


def test_wrong_windows_and_sinks_are_rejected():
    q = samples((B, H, L, E))[0].to("hpu")
    call = (q, q, q, None, 0.0, 0.5, False, False, "None", *[None] * 6, False, False, None, "right")
    with pytest.raises(RuntimeError, match="sinks must have a score for each of 4 query heads"):
        run(hpu_ops.fp8_sdpa_recomp_fwd, *call, (-1, -1), torch.zeros(3, device="hpu"))
    with pytest.raises(RuntimeError, match="window_size"):
        run(hpu_ops.fp8_sdpa_recomp_fwd, *call, (1, 2, 3), None)


def test_zero_means_no_scale():
    q, k, v = (each.to("hpu") for each in samples(*[(B, H, L, E)] * 3, dtype=E4M3))
    attend = (q, k, v, None, 0.0, 0.5, False, True, "fast")
    ends = False, False, None, "left"
    numbers = hpu_ops.fp8_sdpa_recomp_fwd.scalar(*attend, 0.5, 0.0, 2.0, 64.0, 0.0, 0.0, *ends)
    tensors = hpu_ops.fp8_sdpa_recomp_fwd(
        *attend, number(0.5), None, number(2.0), number(64.0), None, None, *ends
    )
    small = hpu_ops.fp8_sdpa_recomp_fwd.scalar(*attend, 0.5, 0.0, 2.0, 64.0, 4.0, 0.0, *ends)
    for one, other in zip(numbers, tensors, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.cpu().float(), other.cpu().float())
    assert [each.dtype for each in numbers[:4]] == [torch.bfloat16] * 3 + [torch.int32]
    assert small[0].dtype == E4M3


def test_kept_probabilities_have_the_query_type():
    for dtype in (E4M3, torch.bfloat16):
        q, k, v = (each.to("hpu") for each in samples(*[(B, H, L, E)] * 3, dtype=dtype))
        rest = "none", None, None, None, number(16.0), None, None, False, None, "left"
        _, probabilities, kept, _ = hpu_ops.fp8_sdpa_fwd(q, k, v, None, 0.0, 0.5, False, *rest)
        assert (probabilities.dtype, probabilities.shape) == (dtype, (B, H, L, L))
        assert (kept.dtype, kept.shape) == (torch.int8, (1,))
        dropped = hpu_ops.fp8_sdpa_fwd(q, k, v, None, 0.5, 0.5, False, *rest)[2]
        assert dropped.shape == (B, H, L, L)


def test_invalid_call_is_rejected_with_the_vendors_message():
    q = samples((B, H, L, E))[0].to("hpu")
    with pytest.raises(AssertionError) as error:
        fp8_fused_sdpa(q.clone().requires_grad_(), q, q)
    assert str(error.value) == "Fp8 FusedSDPA in trining only supports Triangular mask"
    with pytest.raises(
        AssertionError, match="Valid sequence length is supported only in inference"
    ):
        fp8_fused_sdpa(q, q, q, valid_seq_len=torch.ones(B).int().to("hpu"))
    with pytest.raises(RuntimeError, match="must have the same floating-point dtype, but got"):
        run(fp8_fused_sdpa, q, q.float(), q)


def everything(q, k, v, d_q, q_s, q_o):
    measured = fp8_fused_sdpa(q, k, v, d_scale_q=d_q, q_scale_s=q_s, is_amax_s=True, recompute=True)
    small = fp8_fused_sdpa(q, k, v, q_scale_s=q_s, q_scale_o=q_o, recompute=True)[0]
    rest = *[None] * 6, False, False, None, "right", (2, 0), q_o.expand(H)
    near = hpu_ops.fp8_sdpa_recomp_fwd(q, k, v, None, 0.0, 0.5, True, False, "None", *rest)[0]
    return measured[0], measured[1], small.float(), near


def operands(length, seed=0):
    made = samples(*[(B, H, length, E)] * 3, dtype=E4M3, seed=seed)
    return [*on_device(made), number(0.5), number(64.0), number(8.0)]
