"""Test scaled dot-product attention against float64.

Tolerances: 1e-5 for float32, 1e-4 for its gradients, 2e-2 for reduced types.
"""

import pytest
import torch
from attention_reference import attention
from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpex.kernels import FusedSDPA, PySDPA, PySDPAHinted
from in_modes import run
from operator_tensors import EAGER, RECOMPUTE, assert_matches, on_device, random_tensors, rejects

hpu_ops = torch.ops.hpu
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
B, H, L, S, E = 2, 4, 5, 7, 8


MASKS = {
    "none": (None, False),
    "causal": (None, True),
    "padding": (torch.arange(S).lt(torch.tensor([4, 7])[:, None])[:, None, None], False),
    "bool": (torch.rand(B, 1, L, S, generator=torch.Generator().manual_seed(3)) > 0.3, False),
    "per head": (random_tensors((B, H, L, S), seed=4)[0], False),
    "two-dimensional": (random_tensors((L, S), seed=5)[0], False),
    "both": (random_tensors((B, 1, 1, S), seed=6)[0], True),
    "fully masked query": (torch.arange(L).ne(2)[:, None].expand(B, 1, L, S), False),
}


@RECOMPUTE
@TYPES
@pytest.mark.parametrize("name", MASKS)
def test_inference_attends_to_unmasked_keys(name, dtype, recompute):
    mask, is_causal = MASKS[name]
    q, k, v = random_tensors((B, H, L, E), (B, H, S, E), (B, H, S, E), dtype=dtype)
    arguments = on_device((q, k, v, mask, 0.0, is_causal, 0.3, "None", recompute))
    actual = FusedSDPA.apply(*arguments)
    assert_matches(actual, attention(q, k, v, mask, is_causal, 0.3)[0], dtype)


@RECOMPUTE
@pytest.mark.parametrize(
    ("of_q", "of_k", "of_v", "mask"),
    [
        ((3, L, E), (3, S, E), (3, S, E), (3, 1, S)),
        ((3, L, E), (3, S, E), (3, S, 3), (3, L, S)),
        ((B, H, L, E), (B, H, S, E), (B, H, S, 3), None),
        ((B, 6, L, E), (B, 2, S, E), (B, 2, S, E), (B, 1, L, S)),
        ((B, 6, L, E), (B, 2, S, E), (B, 2, S, E), (B, 6, L, S)),
        ((B, 6, L, E), (B, 1, S, E), (B, 1, S, E), (B, 1, 1, S)),
        ((B, 0, L, E), (B, 0, S, E), (B, 0, S, E), None),
    ],
    ids=["3D", "3D Ev", "Ev", "groups", "mask in groups", "one head", "empty"],
)
@pytest.mark.parametrize("mode", ["none", "fast", "fp32"])
def test_shapes_broadcast_and_query_heads_share_kv_heads(of_q, of_k, of_v, mask, recompute, mode):
    q, k, v = random_tensors(of_q, of_k, of_v)
    mask = None if mask is None else random_tensors(mask, seed=2)[0]
    actual = FusedSDPA.apply(*on_device((q, k, v, mask, 0.0, False, None, mode, recompute)))
    expected = torch.empty(*of_q[:-1], of_v[-1]).double()
    if q.numel():
        expected, _ = attention(q, k, v, mask)
    assert_matches(actual, expected, torch.float32)


@RECOMPUTE
@pytest.mark.parametrize(
    ("name", "of_k", "dtype"),
    [
        ("none", (B, H, S, E), torch.float32),
        ("causal", (B, H, S, E), torch.bfloat16),
        ("bool", (B, 2, S, E), torch.float32),
        ("per head", (B, 2, S, E), torch.float32),
        ("padding", (B, 1, S, E), torch.bfloat16),
        ("fully masked query", (B, H, S, E), torch.float32),
        ("none", (B, H, S, 3), torch.float32),
    ],
)
def test_training_gives_the_gradients_of_autograd(name, of_k, dtype, recompute):
    mask, is_causal = MASKS[name]
    of_v, of_k = of_k, (*of_k[:-1], E)
    host = random_tensors((B, H, L, E), of_k, of_v, dtype=dtype)
    exact = [each.double().requires_grad_() for each in host]
    leaves = [each.to("hpu").requires_grad_() for each in host]
    rest = on_device((mask, 0.0, is_causal, 0.3, "None", recompute))
    actual = FusedSDPA.apply(*leaves, *rest)
    expected, _ = attention(*exact, mask, is_causal, 0.3)
    grad = torch.randn_like(expected)
    actual.backward(grad.to(dtype).to("hpu"))
    expected.backward(grad.to(dtype).double())
    assert_matches(actual.detach(), expected.detach(), dtype)
    for leaf, one in zip(leaves, exact, strict=True):
        assert_matches(leaf.grad, one.grad, dtype, exact=1e-4)


@pytest.mark.parametrize("padding", ["left", "right"])
@RECOMPUTE
def test_keys_outside_the_valid_length_are_ignored(padding, recompute):
    q, k, v = random_tensors((B, 4, S, E), (B, 2, S, E), (B, 2, S, E))
    lengths = torch.tensor([3, 7], dtype=torch.int32)
    key = torch.arange(S)
    seen = key < lengths[:, None] if padding == "right" else key >= S - lengths[:, None]
    expected, _ = attention(q, k, v, seen[:, None, None], True)
    rest = on_device((None, 0.0, True, None, "fast", recompute, lengths, padding.upper()))
    actual = FusedSDPA.apply(*on_device((q, k, v)), *rest)
    assert_matches(actual, expected, torch.float32)


def test_probabilities_and_dropout_mask_are_returned_on_request():
    q, k, v = random_tensors((B, 4, L, E), (B, 2, S, E), (B, 2, S, E))
    expected, before = attention(q, k, v)
    values = v.double().repeat_interleave(2, 1)
    device = on_device((q, k, v))
    out, probs = FusedSDPA.apply(
        *device, *(None, 0.0, False), *[None, "None", True], None, "left", False, True
    )
    assert_matches(out, expected, torch.float32)
    assert_matches(probs, before, torch.float32)
    rest = (None, 0.25, False, None, "None", False, None, "left", True)
    out, kept = FusedSDPA.apply(*device, *rest)
    assert (kept.dtype, kept.shape) == (torch.int8, before.shape)
    assert set(kept.cpu().unique().tolist()) == {0, 1}
    assert_matches(out, (before * kept.cpu() / 0.75) @ values, torch.float32)
    out, probs, kept = FusedSDPA.apply(*device, *rest, True)
    assert_matches(probs, before, torch.float32)
    assert_matches(out, (before * kept.cpu() / 0.75) @ values, torch.float32)
    without = FusedSDPA.apply(*device, None, 0.0, *rest[2:])[1]
    assert (without.dtype, without.cpu().tolist()) == (torch.int8, [1])


def test_dropout_keeps_the_expected_share_and_follows_the_device_seed():
    q, k, v = on_device(random_tensors((2, 4, 64, E), (2, 4, 64, E), (2, 4, 64, E)))

    def draw(seed):
        hpu.manual_seed(seed)
        return FusedSDPA.apply(q, k, v, None, 0.25, False, None, "None", False, None, "left", True)

    out, kept = draw(1)
    assert abs(kept.float().mean().item() - 0.75) < 5 * (0.25 * 0.75 / kept.numel()) ** 0.5
    again, same = draw(1)
    assert torch.equal(again.cpu(), out.cpu())
    assert torch.equal(same.cpu(), kept.cpu())
    assert not torch.equal(draw(2)[1].cpu(), kept.cpu())


def test_dropout_is_reproducible_for_permuted_operands():
    q = torch.randn(L, B, H, E, device="hpu").permute(1, 2, 0, 3)
    k = torch.randn(B, H, S, E, device="hpu")

    def draw():
        hpu.manual_seed(1)
        return FusedSDPA.apply(q, k, k, None, 0.5, False, None, "None", False).cpu()

    assert torch.equal(draw(), draw())


@RECOMPUTE
def test_backward_uses_the_dropout_mask_of_the_forward(recompute):
    host = random_tensors((B, H, L, E), (B, H, S, E), (B, H, S, E))
    leaves = [each.to("hpu").requires_grad_() for each in host]
    FusedSDPA.apply(*leaves, None, 0.5, False, None, "None", recompute).sum().backward()
    gradients = [leaf.grad for leaf in leaves]
    hpu.manual_seed(7)
    out = FusedSDPA.apply(*leaves, None, 0.5, False, None, "None", recompute)
    of_v = torch.autograd.grad(out.sum(), leaves[2])[0]
    # out is linear in v, so sum(out) = sum(v * gradient of v) only if both masks are equal.
    torch.testing.assert_close(
        (of_v * leaves[2]).sum().item(), out.sum().item(), rtol=1e-4, atol=1e-4
    )
    assert all(gradient.isfinite().all().item() for gradient in gradients)


def test_gradients_match_the_returned_dropout_mask():
    host = random_tensors((B, H, L, E), (B, H, S, E), (B, H, S, E))
    leaves = [each.to("hpu").requires_grad_() for each in host]
    exact = [each.double().requires_grad_() for each in host]
    out, kept = FusedSDPA.apply(*leaves, None, 0.25, True, None, "None", False, None, "left", True)
    assert not kept.requires_grad
    weights = attention(*exact, None, True)[1] * kept.cpu() / 0.75
    grad = torch.randn(out.shape)
    out.backward(grad.to("hpu"))
    (weights @ exact[2]).backward(grad.double())
    for leaf, one in zip(leaves, exact, strict=True):
        assert_matches(leaf.grad, one.grad, torch.float32, exact=1e-4)


@pytest.mark.parametrize(
    ("requires_grad", "arguments", "message"),
    [
        (
            True,
            (None, 0.0, True, None, "None", False, None, "left", False, True),
            "return_attn_probs is supported only for inference mode",
        ),
        (
            True,
            (None, 0.0, False, None, "FAST", True),
            "Optimized softmax mode is supported in recompute training mode only in "
            "causal(triangular) mask case",
        ),
        (
            False,
            (None, 0.0, False, None, "None", True, torch.ones(B).int()),
            "Valid sequence length is supported only in inference with is_causal(triangular) mask "
            "case",
        ),
        (
            False,
            (None, 0.0, False, None, "None", True, None, "left", True),
            "Return_dropout_mask is not supported in recompute mode",
        ),
    ],
    ids=["probabilities", "fast", "valid length", "dropout mask"],
)
def test_invalid_class_call_is_rejected_with_the_vendors_message(requires_grad, arguments, message):
    q, k, v = on_device(random_tensors((B, H, L, E), (B, H, S, E), (B, H, S, E)))
    with pytest.raises(AssertionError) as error:
        FusedSDPA.apply(q.requires_grad_(requires_grad), k, v, *on_device(arguments))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("q", "k", "p", "message"),
    [
        (torch.ones(1, 2, 4), torch.ones(1, 2, 4).bfloat16(), 0.0, "but got Float, BFloat16 and"),
        (torch.ones(1, 2, 4), torch.ones(1, 2, 3), 0.0, "but got [1, 2, 4], [1, 2, 3]"),
        (torch.ones(1, 2, 4), torch.ones(1, 2, 4), 1.5, "dropout must be in [0, 1), but got 1.5."),
    ],
    ids=["types", "shapes", "dropout"],
)
def test_invalid_call_of_the_operator_is_rejected(q, k, p, message):
    q, k = on_device((q, k))
    with rejects(message):
        run(hpu_ops.sdpa_fwd, q, k, k, None, p, 1.0, False, "none", None, "left")


@pytest.mark.parametrize(
    ("dtype", "mode", "of_sum"),
    [
        (torch.float32, "fast", torch.float32),
        (torch.bfloat16, "none", torch.float32),
        (torch.bfloat16, "fast", torch.bfloat16),
    ],
    ids=str,
)
@pytest.mark.parametrize("of_v", [E, 3])
def test_recomputation_keeps_the_largest_score_and_the_inverse_sum(dtype, mode, of_sum, of_v):
    q, k, v = random_tensors((B, H, 300, E), (B, H, S, E), (B, H, S, of_v), dtype=dtype)
    scores = q.double() @ k.double().mT * 0.5
    arguments = on_device((q, k, v, None, 0.0, 0.5, False))
    out, m, linv, seed = hpu_ops.sdpa_recomp_fwd(*arguments, True, mode, None, "left")
    assert_matches(out, torch.softmax(scores, -1) @ v.double(), dtype)
    assert_matches(m, scores.amax(-1, keepdim=True), dtype)
    expected = 1 / (scores - m.cpu().double()).exp().sum(-1, keepdim=True)
    assert linv.dtype == of_sum
    torch.testing.assert_close(
        linv.cpu().double(), expected, rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=0
    )
    assert (seed.dtype, seed.shape) == (torch.int32, (1,))
    inference = hpu_ops.sdpa_recomp_fwd(*arguments, False, mode, None, "left")
    assert [(each.shape, each.dtype) for each in inference[1:]] == [
        ((1,), dtype),
        ((1,), torch.float32),
        ((1,), torch.int32),
    ]


@pytest.mark.parametrize("of_mask", [(B, 1, 300, 280), (280,), (300, 1)], ids=str)
def test_kept_statistics_of_many_queries_respect_the_masks(of_mask):
    q, k, mask = random_tensors((B, H, 300, E), (B, H, 280, E), of_mask)
    seen = torch.ones(300, 280, dtype=torch.bool).tril()
    scores = (q.double() @ k.double().mT * 0.5 + mask).masked_fill(~seen, -torch.inf)
    arguments = on_device((q, k, k, mask, 0.0, 0.5, True))
    out, m, linv, _ = hpu_ops.sdpa_recomp_fwd(*arguments, True, "none", None, "left")
    assert_matches(out, torch.softmax(scores, -1) @ k.double(), torch.float32)
    assert_matches(m, scores.amax(-1, keepdim=True), torch.float32)
    sums = (scores - scores.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)
    assert_matches(linv, 1 / sums, torch.float32)


@EAGER
def test_operators_of_compiled_graphs_equal_the_plain_operators():
    q, k, v = on_device(random_tensors((B, H, L, E), (B, H, S, E), (B, H, S, E)))
    seed = torch.tensor([5], dtype=torch.int32).to("hpu")
    plain = (q, k, v, None, 0.0, 0.5, True)
    padding = "none", None, "left"
    expected = hpu_ops.sdpa_fwd(*plain, *padding)
    for actual, one in zip(hpu_ops.sdpa_fwd_non_dropout(*plain, *padding), expected, strict=True):
        assert torch.equal(actual.cpu(), one.cpu())
    dropping = (q, k, v, None, 0.5, 0.5, True)
    out, _, kept = hpu_ops.sdpa_fwd_dropout_seed(seed, *dropping, *padding)
    again, _, _, used = hpu_ops.sdpa_recomp_fwd_dropout_seed(seed, *dropping, True, *padding)
    torch.testing.assert_close(again.cpu(), out.cpu())  # equal seeds, equal masks
    assert used.tolist() == [5]
    drawn = hpu_ops.sdpa_recomp_fwd_dropout(*dropping, True, *padding)
    same = hpu_ops.sdpa_recomp_fwd_dropout_seed(drawn[3], *dropping, True, *padding)
    assert torch.equal(drawn[0].cpu(), same[0].cpu())
    assert set(kept.cpu().unique().tolist()) == {0, 1}


@pytest.mark.parametrize("kind", [PySDPA, PySDPAHinted])
@pytest.mark.parametrize("slices", [(), (False,), (True,)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_composed_attention_equals_fused_attention(kind, slices, is_causal, dtype):
    host = random_tensors((B, H, L, E), (B, H, L, E), (B, H, L, 3), dtype=dtype)
    exact = [each.double().requires_grad_() for each in host]
    leaves = [each.to("hpu").requires_grad_() for each in host]
    actual = kind.apply(*leaves, is_causal, *slices)
    expected, _ = attention(*exact, None, is_causal)
    grad = torch.randn_like(expected).to(dtype)
    actual.backward(grad.to("hpu"))
    expected.backward(grad.double())
    assert_matches(actual.detach(), expected.detach(), dtype)
    within = 1e-4 if dtype is torch.float32 else 4e-2  # each operator rounds
    for leaf, one in zip(leaves, exact, strict=True):
        torch.testing.assert_close(leaf.grad.cpu().double(), one.grad, rtol=within, atol=within)


def test_composed_attention_needs_four_dimensions():
    leaf = torch.ones(2, 3, 4, device="hpu", requires_grad=True)
    with pytest.raises(AssertionError, match=r"^ Currently support only 4D$"):
        PySDPA.apply(leaf, leaf, leaf).sum().backward()


def everything(q, k, v, mask):
    attend = (q, k, v, mask, 0.0, 0.5, False)
    out, p, kept = hpu_ops.sdpa_fwd(*attend, "none", None, "left")
    again, m, linv, seed = hpu_ops.sdpa_recomp_fwd(*attend, True, "none", None, "left")
    return (
        *(out, p, kept, again, m, linv),
        *hpu_ops.sdpa_bwd(out, q, k, v, p, None, False, 0.0, 0.5, out),
        *hpu_ops.sdpa_recomp_bwd(
            again, q, k, v, mask, m, linv, seed, False, 0.0, 0.5, "none", again
        ),
        FusedSDPA.apply(q, k[:, :1], v[:, :1], None, 0.0, True, None, "None", True),
    )


def operands(length, seed=0):
    shapes = (B, H, length, E), (B, H, S, E), (B, H, S, E), (B, 1, length, S)
    return on_device(random_tensors(*shapes, seed=seed))


@EAGER
def test_compiled_training_gives_the_gradients_of_eager_mode():
    def attend(q, k, v):
        return FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", True)

    compiled = torch.compile(attend, backend="hpu_backend", fullgraph=True)
    for length in (3, 6):
        grads = []
        for function in (compiled, attend):
            shapes = (B, H, length, E), (B, 2, length, E), (B, 2, length, E)
            leaves = [each.to("hpu").requires_grad_() for each in random_tensors(*shapes)]
            function(*leaves).square().sum().backward()
            grads.append([leaf.grad.cpu() for leaf in leaves])
        for actual, expected in zip(*grads, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
