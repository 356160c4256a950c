"""A window of keys and sinks in FusedSDPA, against float64: float32 within 1e-5, bfloat16 2e-2."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.hpex.kernels import FusedSDPA  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays  # noqa: E402

B, H, L, S, E = 2, 4, 5, 7, 8
RECOMPUTE = pytest.mark.parametrize("recompute", [True, False], ids=["recompute", "keep"])
WINDOWS = pytest.mark.parametrize("window", [(2, 1), (0, 0), (-1, 1), (1, -1)], ids=str)


def samples(*shapes, dtype=torch.float32, seed=0):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=made).to(dtype) for shape in shapes]


def reference(q, k, v, *, mask=None, causal=False, window=(-1, -1), sink=None):
    heads = q.shape[1] // k.shape[1]
    k, v = (each.double().repeat_interleave(heads, 1) for each in (k, v))
    scores = q.double() @ k.mT * E**-0.5
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
        )
    for i in range(scores.shape[-2]):
        for j in range(scores.shape[-1]):
            outside = (0 <= window[0] < i - j) or (0 <= window[1] < j - i)
            if outside or (causal and j > i):
                scores[..., i, j] = -torch.inf
    if sink is not None:
        beside = sink.double().reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, beside], -1)
    probabilities = torch.softmax(scores, -1)[..., : k.shape[-2]].nan_to_num(0.0)
    return probabilities @ v, probabilities


def attend(q, k, v, *, mask=None, causal=False, window=(-1, -1), sink=None, recompute=True, probs):
    moved = [each if each is None else each.to("hpu") for each in (q, k, v, mask, sink)]
    return FusedSDPA.apply(
        *(*moved[:4], 0.0, causal, None, "None", recompute, None, "left", False, probs, window),
        moved[4],
    )


@RECOMPUTE
@WINDOWS
@pytest.mark.parametrize("masked", ["none", "bool", "float", "causal"])
def test_a_query_sees_the_keys_of_its_window(window, masked, recompute):
    q, k, v, added = samples((B, H, L, E), (B, 2, S, E), (B, 2, S, E), (B, 1, L, S))
    mask = {"bool": added > -0.5, "float": added}.get(masked)
    given = {"mask": mask, "causal": masked == "causal", "window": window}
    found = attend(q, k, v, **given, recompute=recompute, probs=False)
    expected, _ = reference(q, k, v, **given)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)


@RECOMPUTE
@pytest.mark.parametrize("heads", [H, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_sink_draws_attention_to_nothing(dtype, heads, recompute):
    q, k, v = samples((B, H, L, E), (B, heads, S, E), (B, heads, S, E), dtype=dtype)
    sink = torch.tensor([-3.0, 0.0, 2.0, 30.0]).to(dtype)
    given = {"causal": True, "window": (3, 0), "sink": sink}
    found = attend(q, k, v, **given, recompute=recompute, probs=False)
    expected, _ = reference(q, k, v, **given)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    assert (found.dtype, found.shape) == (dtype, q.shape)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def test_probabilities_that_come_back_leave_room_for_the_sink():
    q, k, v = samples((B, H, L, E), (B, 2, S, E), (B, 2, S, E))
    given = {"window": (2, -1), "sink": torch.tensor([0.0, 1.0, -1.0, 2.0])}
    out, found = attend(q, k, v, **given, probs=True)
    expected_out, expected = reference(q, k, v, **given)
    torch.testing.assert_close(out.cpu().double(), expected_out, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    assert (found.sum(-1) < 0.99).any()


def test_a_window_and_a_sink_are_for_inference():
    q = samples((B, H, L, E))[0].to("hpu")
    leaf = q.clone().requires_grad_()
    rest = None, 0.0, False, None, "None", None, None, "left", False, False
    for option in (((2, 0), None), ((-1, -1), torch.zeros(H, device="hpu"))):
        with pytest.raises(ValueError, match="supports window_size and sink only in inference"):
            FusedSDPA.apply(leaf, q, q, *rest, *option)
    with pytest.raises(ValueError, match="one score for each of 4 query heads, but has shape"):
        FusedSDPA.apply(q, q, q, *rest, (-1, -1), torch.zeros(3, device="hpu"))
    FusedSDPA.apply(leaf, q, q, *rest, (-1, -1), None).sum().backward()
    assert leaf.grad is not None


def everything(q, k, v, sink):
    rest = None, 0.0, True, None, "None", True, None, "left", False, False
    return FusedSDPA.apply(q, k, v, *rest, (2, 0), sink)


def operands(length, seed=0):
    made = samples((B, H, length, E), (B, 2, length, E), (B, 2, length, E), (H,), seed=seed)
    return [each.to("hpu") for each in made]


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_window_is_that_of_eager_mode():
    assert_compiles(everything, operands(3), operands(5))


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_sees_the_window_of_what_lies_in_the_captured_inputs():
    assert_replays(everything, operands(3), operands(3, seed=1))
