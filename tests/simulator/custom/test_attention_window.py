"""Test attention windows and sinks of FusedSDPA against float64: float32 1e-5, bfloat16 2e-2."""

import pytest
import torch
from attention_reference import attention
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from operator_tensors import RECOMPUTE, on_device, random_tensors

B, H, L, S, E = 2, 4, 5, 7, 8
WINDOWS = pytest.mark.parametrize("window", [(2, 1), (0, 0), (-1, 1), (1, -1)], ids=str)


def attend(
    q, k, v, *, mask=None, is_causal=False, window=(-1, -1), sink=None, recompute=True, probs
):
    moved = on_device((q, k, v, mask, sink))
    return FusedSDPA.apply(
        *(*moved[:4], 0.0, is_causal, None, "None", recompute, None, "left", False, probs, window),
        moved[4],
    )


@RECOMPUTE
@WINDOWS
@pytest.mark.parametrize("masked", ["none", "bool", "float", "causal"])
def test_query_attends_to_the_keys_in_its_window(window, masked, recompute):
    q, k, v, added = random_tensors((B, H, L, E), (B, 2, S, E), (B, 2, S, E), (B, 1, L, S))
    mask = {"bool": added > -0.5, "float": added}.get(masked)
    options = {"mask": mask, "is_causal": masked == "causal", "window": window}
    actual = attend(q, k, v, **options, recompute=recompute, probs=False)
    expected, _ = attention(q, k, v, **options)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-5)


@RECOMPUTE
@pytest.mark.parametrize("heads", [H, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sink_takes_a_share_of_the_attention(dtype, heads, recompute):
    q, k, v = random_tensors((B, H, L, E), (B, heads, S, E), (B, heads, S, E), dtype=dtype)
    sink = torch.tensor([-3.0, 0.0, 2.0, 30.0]).to(dtype)
    options = {"is_causal": True, "window": (3, 0), "sink": sink}
    actual = attend(q, k, v, **options, recompute=recompute, probs=False)
    expected, _ = attention(q, k, v, **options)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    assert (actual.dtype, actual.shape) == (dtype, q.shape)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def test_returned_probabilities_leave_a_share_for_the_sink():
    q, k, v = random_tensors((B, H, L, E), (B, 2, S, E), (B, 2, S, E))
    options = {"window": (2, -1), "sink": torch.tensor([0.0, 1.0, -1.0, 2.0])}
    out, actual = attend(q, k, v, **options, probs=True)
    expected_out, expected = attention(q, k, v, **options)
    torch.testing.assert_close(out.cpu().double(), expected_out, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    assert (actual.sum(-1) < 0.99).any()


def test_window_and_sink_are_rejected_in_training():
    q = random_tensors((B, H, L, E))[0].to("hpu")
    leaf = q.clone().requires_grad_()
    rest = None, 0.0, False, None, "None", None, None, "left", False, False
    for option in (((2, 0), None), ((-1, -1), torch.zeros(H, device="hpu"))):
        with pytest.raises(ValueError, match="supports window_size and sink only in inference"):
            FusedSDPA.apply(leaf, q, q, *rest, *option)
    with pytest.raises(ValueError, match="with a score for each of the 4 query heads"):
        FusedSDPA.apply(q, q, q, *rest, (-1, -1), torch.zeros(3, device="hpu"))
    FusedSDPA.apply(leaf, q, q, *rest, (-1, -1), None).sum().backward()
    assert leaf.grad is not None


def everything(q, k, v, sink):
    rest = None, 0.0, True, None, "None", True, None, "left", False, False
    return FusedSDPA.apply(q, k, v, *rest, (2, 0), sink)


def operands(length, seed=0):
    made = random_tensors((B, H, length, E), (B, 2, length, E), (B, 2, length, E), (H,), seed=seed)
    return on_device(made)
