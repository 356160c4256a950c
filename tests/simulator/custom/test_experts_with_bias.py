"""Test mixtures of experts with biases and MXFP4 weights against float64."""

import pytest
import torch
from in_modes import run
from operator_tensors import on_device, rejects

mixture = torch.ops.hpu.mixture_of_experts
TOKENS, HIDDEN, INNER, EXPERTS = 6, 64, 32, 3
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
FP4 = torch.cat([FP4, -FP4])


def routed(tokens=TOKENS, seed=0):
    made = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, HIDDEN, generator=made)
    table = torch.randint(0, EXPERTS, (tokens, 2), generator=made)
    return hidden, table, torch.rand(tokens, 2, generator=made)


def weights(*shape):
    made = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=made) / 4 for _ in range(EXPERTS)]


def gpt_oss(hidden, table, share, gate_up, down, of_gate_up, of_down, alpha=1.702, limit=7.0):
    out = torch.zeros(hidden.shape, dtype=torch.float64)
    for t in range(TOKENS):
        for k, e in enumerate(table[t].tolist()):
            both = gate_up[e].double() @ hidden[t].double() + of_gate_up[e].double()
            gate, up = both[::2].clamp(max=limit), both[1::2].clamp(-limit, limit)
            values = (up + 1) * gate * torch.sigmoid(alpha * gate)
            out[t] += share[t, k].double() * (down[e].double() @ values + of_down[e].double())
    return out


def move(*values):
    return [on_device(each) if isinstance(each, list) else each.to("hpu") for each in values]


@pytest.mark.parametrize("limit", [7.0, 0.5])
def test_gates_and_ups_alternate_and_are_clamped(limit):
    tensors = (*routed(), weights(2 * INNER, HIDDEN), weights(HIDDEN, INNER))
    biases = weights(2 * INNER), weights(HIDDEN)
    actual = mixture.bias_fused_weights(
        *move(*tensors, *biases),
        permuted_weights=True,
        experts_min=0,
        experts_max=EXPERTS - 1,
        limit=limit,
    )
    expected = gpt_oss(*tensors, *biases, limit=limit)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def packed(*shape, seed):
    """Return random MXFP4 weights: bytes, exponents of blocks of 32, and the numbers."""
    made = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, shape, generator=made)
    exponents = torch.randint(122, 128, (shape[0], shape[1] // 32), generator=made)
    numbers = FP4[codes] * torch.exp2(exponents - 127.0).repeat_interleave(32, 1)
    return (codes[:, ::2] | codes[:, 1::2] << 4).byte(), exponents.byte(), numbers


def blocks():
    gates = [packed(2 * INNER, HIDDEN, seed=seed) for seed in range(EXPERTS)]
    downs = [packed(HIDDEN, INNER, seed=seed + 9) for seed in range(EXPERTS)]
    return [[list(each) for each in zip(*lists, strict=True)] for lists in (gates, downs)]


IDS = {"block_size": 32, "permuted_weights": True, "experts_min": 0, "experts_max": EXPERTS - 1}


def test_mxfp4_weights_with_bias_equal_their_numbers():
    (w12, s12, gate_up), (w3, s3, down) = blocks()
    tensors, biases = routed(), (weights(2 * INNER), weights(HIDDEN))
    actual = mixture.bias_mxfp4_fused_weights(
        *move(*tensors, w12, w3, *biases, s12, s3), **IDS, is_fp4=True, chunk_size=16
    )
    expected = gpt_oss(*tensors, gate_up, down, *biases)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def test_mxfp4_weights_without_bias_equal_fused_weights():
    (w12, s12, gate_up), (w3, s3, down) = blocks()
    actual = mixture.mxfp4_fused_weights(
        *move(*routed(), w12, w3, s12, s3), **IDS, activation="silu"
    )
    expected = mixture.fused_weights(
        *move(*routed(), gate_up, down), True, "silu", 0, EXPERTS - 1, chunk_size=16
    )
    torch.testing.assert_close(actual.cpu(), expected.cpu())


def test_wrong_blocks_are_rejected():
    (w12, s12, _), (w3, s3, _) = blocks()
    tensors, lists = move(*routed()), move(w12, w3, s12, s3)
    for change, message in (
        ({"block_size": 16}, "need a scale for each 16 numbers of a row"),
        ({"permuted_weights": False}, "MXFP4 weights only as [out, in]; set permuted_weights"),
        ({"is_fp4": False}, "but is_fp4 is False; set it to True."),
    ):
        with rejects(message):
            run(mixture.mxfp4_fused_weights, *tensors, *lists, **IDS | change, activation="silu")
    with rejects("d_scale_w12 must have the scales of 3 experts, but got 2."):
        lists[2] = lists[2][:2]
        run(mixture.mxfp4_fused_weights, *tensors, *lists, **IDS, activation="silu")


def test_biases_of_other_experts_are_rejected():
    tensors = move(*routed(), weights(2 * INNER, HIDDEN), weights(HIDDEN, INNER))
    biases = move(weights(2 * INNER), weights(HIDDEN))
    options = {name: value for name, value in IDS.items() if name != "block_size"}
    with rejects("w3_bias must have a bias for each of 3 experts, but got 2."):
        run(mixture.bias_fused_weights, *tensors, biases[0], biases[1][:2], **options)
    with rejects("w12_bias must have an element for each of 64 output channels, but got 1."):
        ones = [torch.ones(1, device="hpu")] * EXPERTS
        run(mixture.bias_fused_weights, *tensors, ones, biases[1], **options)


def everything(hidden, table, share, *stacked):
    w12, s12, gate_up, w3, s3, down, *biases = (list(each.unbind()) for each in stacked)
    options = {name: value for name, value in IDS.items() if name != "block_size"}
    routing = hidden, table, share
    return (
        mixture.bias_fused_weights(*routing, gate_up, down, *biases, **options),
        mixture.mxfp4_fused_weights(*routing, w12, w3, s12, s3, **IDS, activation="relu"),
        mixture.bias_mxfp4_fused_weights(*routing, w12, w3, *biases, s12, s3, **IDS),
    )


def operands(tokens, seed=0):
    gates, downs = blocks()
    lists = (*gates, *downs, weights(2 * INNER), weights(HIDDEN))
    return on_device((*routed(tokens, seed), *map(torch.stack, lists)))
