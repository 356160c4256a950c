"""Attention without queries or without keys has empty or zero results and zero gradients."""

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA, fp8_fused_sdpa

ATTENTION = {
    "pytorch": torch.nn.functional.scaled_dot_product_attention,
    "recompute": lambda q, k, v: FusedSDPA.apply(q, k, v, None, 0.0, False, None, "None", True),
    "keep": lambda q, k, v: FusedSDPA.apply(q, k, v, None, 0.0, False, None, "None", False),
    "dropout": lambda q, k, v: FusedSDPA.apply(q, k, v, None, 0.5, False, None, "None", True),
    "causal": lambda q, k, v: FusedSDPA.apply(q, k, v, None, 0.0, True),
}
LENGTHS = pytest.mark.parametrize(("queries", "keys"), [(0, 4), (4, 0), (0, 0)], ids=str)


@pytest.mark.parametrize("attend", ATTENTION.values(), ids=ATTENTION)
@LENGTHS
def test_empty_attention_is_zero_and_differentiable(attend, queries, keys):
    leaves = [
        torch.randn(2, 3, length, 8, device="hpu", requires_grad=True)
        for length in (queries, keys, keys)
    ]
    out = attend(*leaves)
    assert (out.shape, out.detach().cpu().unique().tolist()) == (
        (2, 3, queries, 8),
        [0.0] if queries else [],
    )
    out.sum().backward()
    for leaf in leaves:
        assert leaf.grad.shape == leaf.shape
        assert not leaf.grad.cpu().any()


@LENGTHS
@pytest.mark.parametrize("recompute", [True, False], ids=["recompute", "keep"])
def test_fp8_measurement_of_empty_attention_is_zero(queries, keys, recompute):
    q, k, v = (torch.randn(2, 3, length, 8).to("hpu") for length in (queries, keys, keys))
    out, largest, _ = fp8_fused_sdpa(q, k, v, is_amax_s=True, recompute=recompute)
    assert (out.shape, largest.tolist()) == ((2, 3, queries, 8), [0.0])
    assert not out.cpu().any()
