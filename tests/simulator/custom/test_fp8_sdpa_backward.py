"""Test gradients of FP8 attention against float64 and the vendor's casts: within 2e-2."""

from functools import partial

import pytest
import torch
from in_modes import run
from operator_tensors import E4M3, E5M2, EAGER, on_device, random_tensors

hpu_ops = torch.ops.hpu
B, H, L, E = 2, 4, 6, 8
SCALE = E**-0.5
samples = partial(random_tensors, dtype=torch.bfloat16)
FACTORS = {"d_q": 0.5, "d_k": 0.25, "d_v": 2.0, "d_do": 0.5, "q_s": 64.0, "q_ds": 256.0}


def number(value):
    return None if value is None else torch.tensor([value]).to("hpu")


def in_fp8(values, dtype):
    limit = 240 if dtype is E4M3 else 57344
    return values.clamp(-limit, limit).float().to(dtype).double()


def reference(grad, q, k, v, probabilities, kept, p, *, d_q, d_k, d_v, d_do, q_s, q_ds):
    """Return the gradients and the largest gradient of the scores, from saved probabilities."""
    q, k, v, grad = q.double() * d_q, k.double() * d_k, v.double() * d_v, grad.double() * d_do
    exact = probabilities.double() / (q_s or 1.0)
    drop = kept.double() / (1 - p) if p else 1.0
    of_weights = grad @ v.mT * drop
    of_scores = exact * (of_weights - (of_weights * exact).sum(-1, keepdim=True))
    largest = of_scores.abs().max()
    if q_ds is not None:
        of_scores = in_fp8(of_scores * q_ds, E5M2) / q_ds
    of_k = of_scores.mT @ q * SCALE
    of_v = (exact * drop).mT @ grad
    return of_scores @ k * SCALE, of_k, of_v, largest


def forward(q, k, v, p, *, d_q, d_k, d_v, q_s, causal=False):
    scales = number(d_q), number(d_k), number(d_v), number(q_s), None, None
    rest = p, SCALE, causal, "none", *scales, False, None, "left"
    return hpu_ops.fp8_sdpa_fwd(q, k, v, None, *rest)


def backward(grad, q, k, v, probabilities, kept, p, out, causal=False, **factors):
    dequantize = [number(factors[name]) for name in ("d_q", "d_k", "d_v")]
    quantize = number(factors["q_s"]), number(factors["q_ds"])
    return hpu_ops.fp8_sdpa_bwd(
        *(grad, q, k, v, probabilities, kept, causal, p, SCALE, *dequantize, None),
        *(number(factors["d_do"]), None, *quantize, True, out),
    )


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("of_k", [(B, H, L, E), (B, 1, L, E)], ids=str)
def test_gradients_are_quantized(of_k, p):
    q, k, v = samples((B, H, L, E), of_k, of_k, dtype=E4M3)
    (grad,) = samples((B, H, L, E), dtype=E5M2, seed=1)
    arguments = on_device((q, k, v))
    of_forward = {name: FACTORS[name] for name in ("d_q", "d_k", "d_v", "q_s")}
    out, probabilities, kept, _ = forward(*arguments, p, causal=True, **of_forward)
    actual = backward(
        grad.to("hpu"), *arguments, probabilities, kept, p, out, causal=True, **FACTORS
    )
    exact = reference(grad, q, k, v, probabilities.cpu(), kept.cpu(), p, **FACTORS)
    for one, expected, operand in zip(actual[:3], exact[:3], (q, k, v), strict=True):
        summed = expected.sum_to_size(operand.shape)
        assert (one.dtype, one.shape) == (torch.bfloat16, operand.shape)
        torch.testing.assert_close(one.cpu().double(), summed, rtol=2e-2, atol=2e-2)
    assert (actual[3].dtype, actual[3].shape) == (torch.float32, (1,))
    assert actual[3].item() == pytest.approx(exact[3].item(), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_gradients_without_scales_match_attention(dtype):
    tensors = samples(*[(B, H, L, E)] * 4, dtype=dtype)
    q, k, v, grad = (each.to("hpu") for each in tensors)
    nothing = dict.fromkeys(FACTORS)
    of_forward = dict.fromkeys(("d_q", "d_k", "d_v", "q_s"))
    out, probabilities, kept, _ = forward(q, k, v, 0.0, **of_forward)
    actual = backward(grad, q, k, v, probabilities, kept, 0.0, out, **nothing)
    leaves = [each.double().requires_grad_() for each in tensors[:3]]
    exact = torch.nn.functional.scaled_dot_product_attention(*leaves)
    exact.backward(tensors[3].double())
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    for one, leaf in zip(actual[:3], leaves, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.cpu().double(), leaf.grad, rtol=tolerance, atol=tolerance)


def test_backward_needs_the_dropout_mask():
    q = samples((B, H, L, E), dtype=E4M3)[0].to("hpu")
    probabilities = torch.zeros(B, H, L, L).to(E4M3).to("hpu")
    with pytest.raises(RuntimeError, match="needs the dropout mask if p is"):
        run(backward, q, q, q, q, probabilities, None, 0.5, q, **FACTORS)


@EAGER
def test_operators_of_compiled_graphs_equal_the_plain_operators():
    q, k, v = (each.to("hpu") for each in samples(*[(B, H, L, E)] * 3, dtype=E4M3))
    ends = None, "left"
    tensors = number(0.5), None, None, number(64.0), None, None, False
    numbers = 0.5, 0.0, 0.0, 64.0, 0.0, 0.0, False
    for p, spelling in ((0.0, "_non_dropout"), (0.5, "_dropout")):
        attend = q, k, v, None, p, SCALE, False
        for name, overload, scales in (
            ("fp8_sdpa_fwd", "default", ("none", *tensors)),
            ("fp8_sdpa_recomp_fwd", "default", (True, "none", *tensors, False)),
            ("fp8_sdpa_recomp_fwd", "scalar", (True, "none", *numbers, False)),
        ):
            results = []
            for each in ("", spelling):
                torch.manual_seed(1)
                operator = getattr(getattr(hpu_ops, name + each), overload)
                results.append(operator(*attend, *scales, *ends))
            seed = results[0][3] if "recomp" in name else torch.tensor([7]).int().to("hpu")
            seeded = getattr(getattr(hpu_ops, name + "_dropout_seed"), overload)
            again = [seeded(seed, *attend, *scales, *ends) for _ in range(2)]
            if "recomp" in name and p:
                results.append(again[0])
            for actual, expected in ((results[-1], results[0]), (results[1], results[0]), again):
                for one, other in zip(actual, expected, strict=True):
                    assert one.dtype == other.dtype
                    assert torch.equal(one.cpu().float(), other.cpu().float())


def everything(grad, q, k, v, probabilities, out, d_q, q_ds):
    return hpu_ops.fp8_sdpa_bwd(
        *(grad, q, k, v, probabilities, None, False, 0.0, 0.5, d_q, None, None, None),
        *(None, None, None, q_ds, True, out),
    )


def operands(length, seed=0):
    shape, of_scores = (B, H, length, E), (B, H, length, length)
    made = samples(*[shape] * 4, of_scores, shape, dtype=E4M3, seed=seed)
    return [*on_device(made), number(0.5), number(16.0)]
