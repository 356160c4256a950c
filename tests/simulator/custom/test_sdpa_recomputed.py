"""Test recomputation in the backward pass of attention, from statistics of the forward pass."""

import importlib

import pytest
import torch
from attention_reference import attention
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from in_modes import run
from operator_tensors import on_device

hpu_ops = torch.ops.hpu


def gradients(attend, *operands):
    operands = [each.requires_grad_() for each in operands]
    loss = attend(*operands).float().square().sum()
    return [each.double().cpu() for each in torch.autograd.grad(loss, operands)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("hidden", [-1e5, torch.finfo(torch.float32).min, -torch.inf])
@pytest.mark.parametrize("p", [0.0, 1e-9], ids=["flash", "with_dropout"])
def test_fully_masked_query_has_zero_gradients(dtype, hidden, p):
    torch.manual_seed(0)
    operands = [torch.randn(1, 2, 4, 8).to(dtype) for _ in range(3)]
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 0, :] = mask[..., :, 0] = hidden
    actual = gradients(
        lambda q, k, v: FusedSDPA.apply(q, k, v, mask.to("hpu"), p),
        *(each.to("hpu") for each in operands),
    )
    expected = gradients(
        lambda q, k, v: attention(q, k, v, mask)[0],
        *(each.double() for each in operands),
    )
    torch.testing.assert_close(actual, expected, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("module", ["FusedSDPA", "Fp8FusedSDPA"])
def test_gqa_helpers_of_the_module_group_query_heads(module):
    helpers = importlib.import_module(f"habana_frameworks.torch.hpex.kernels.{module}")
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 3, 8, device="hpu") for heads in (6, 2, 2))
    mask = torch.randn(2, 1, 3, 3, device="hpu")
    assert helpers.is_gqa(q, k)
    assert not helpers.is_gqa(k, k)
    *operands, in_groups = helpers.gqa_input_reshape_fwd(q, k, v, mask)
    assert [each.shape for each in (*operands, in_groups)] == [
        (2, 2, 3, 3, 8),
        (2, 2, 1, 3, 8),
        (2, 2, 1, 3, 8),
        (2, 1, 1, 3, 3),
    ]
    results = hpu_ops.sdpa_recomp_fwd(
        *operands, in_groups, 0.0, 8**-0.5, False, True, "None", None, "right"
    )
    out, largest, inverse = map(helpers.gqa_output_reshape, results[:3])
    repeated = [each.cpu().repeat_interleave(3, 1) for each in (k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(q.cpu(), *repeated, mask.cpu())
    torch.testing.assert_close(out.cpu(), expected)
    assert (out.shape, largest.shape, inverse.shape) == ((2, 6, 3, 8), (2, 6, 3, 1), (2, 6, 3, 1))
    assert helpers.gqa_input_reshape_fwd(q, k, v, None)[3] is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("score", [100.0, 32896.0, 50047.0, 60100.0])
def test_large_scores_are_not_rounded_to_the_operand_type(dtype, score):
    tens, ones = divmod(score, 256)
    q = torch.tensor([[[[1.0, ones]]]], dtype=dtype, device="hpu")
    k = torch.tensor([[[[256 * tens, 1.0], [0.0, 0.0]]]], dtype=dtype, device="hpu")
    v = torch.ones(1, 1, 2, 2, dtype=dtype, device="hpu", requires_grad=True)
    result = FusedSDPA.apply(q, k, v, None, 0.0, False, 1.0)
    (gradient,) = torch.autograd.grad(result.sum(), v)
    assert gradient.tolist() == [[[[1.0, 1.0], [0.0, 0.0]]]]


@pytest.fixture
def with_threads():
    """Compute with the specified number of threads."""
    before = torch.get_num_threads()

    def compute(threads, function):
        torch.set_num_threads(threads)
        return [each.cpu() for each in function()]

    yield compute
    torch.set_num_threads(before)


@pytest.mark.parametrize("of_v", [(1, 5, 600, 8), (2, 1, 600, 8)], ids=str)
@pytest.mark.parametrize("of_mask", [None, (5, 130, 1), (600,), (5, 130, 600)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_result_does_not_depend_on_the_number_of_threads(with_threads, of_v, of_mask, causal):
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape) for shape in ((1, 5, 130, 8), (5, 600, 8), of_v))
    mask = None if of_mask is None else torch.randn(of_mask)
    arguments = on_device((q, k, v, mask))
    options = (0.0, 0.5, causal, True, "none", None, "left")
    one, two = (
        with_threads(threads, lambda: hpu_ops.sdpa_recomp_fwd(*arguments, *options))
        for threads in (1, 2)
    )
    torch.testing.assert_close(two, one, rtol=0, atol=0)

    scores = q.double() @ k.double().mT * 0.5 + (0 if mask is None else mask)
    if causal:
        scores = scores.masked_fill(~torch.ones(130, 600, dtype=torch.bool).tril(), -torch.inf)
    largest = scores.amax(-1, keepdim=True)
    sums = (scores - largest).exp().sum(-1, keepdim=True)
    expected = [torch.softmax(scores, -1) @ v.double(), largest, 1 / sums]
    torch.testing.assert_close([each.double() for each in one[:3]], expected, rtol=1e-5, atol=1e-5)


SHAPES = {"grad": (2, 2, 3, 4), "m": (2, 2, 3, 1), "linv": (2, 2, 3, 1), "fwd_out": (2, 2, 3, 4)}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("grad", shape) for shape in [(2, 2, 3, 1), (2, 2, 1, 4), (2, 3, 4)]),
        *(("m", shape) for shape in [(2, 2, 3, 0), (2, 2, 1, 1), (1, 1, 1, 1)]),
        *(("linv", shape) for shape in [(2, 2, 3, 0), (2, 2, 4, 1)]),
        *(("fwd_out", shape) for shape in [(2, 2, 3, 0), (2, 2, 3, 1), (2, 2, 300, 4)]),
    ],
)
def test_statistics_of_the_wrong_shape_are_rejected(name, shape):
    q, k, v = (torch.randn(2, 2, 3, 4, device="hpu") for _ in range(3))
    arguments = {each: torch.ones(SHAPES[each], device="hpu") for each in SHAPES}
    arguments[name] = torch.ones(shape, device="hpu")
    seed = torch.zeros(1, dtype=torch.int32, device="hpu")
    kept = (arguments["m"], arguments["linv"], seed, False, 0.0, 0.5, "none", arguments["fwd_out"])
    with pytest.raises(RuntimeError) as error:
        run(hpu_ops.sdpa_recomp_bwd, arguments["grad"], q, k, v, None, *kept)
    assert str(error.value).splitlines()[0] == (
        f"Sdpa backward needs {name} of shape {list(SHAPES[name])}, but its shape is {list(shape)}."
    )


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("recompute", [True, False], ids=["recompute", "keep"])
@pytest.mark.parametrize("shape", [(1, 1, 4, 9), (1, 1, 7, 6), (1, 1, 4, 3), (4, 9), (3, 2, 4, 6)])
def test_mask_that_does_not_broadcast_is_rejected(shape, recompute, training):
    q = torch.randn(1, 2, 4, 8, device="hpu", requires_grad=training)
    k, v = (torch.randn(1, 2, 6, 8, device="hpu") for _ in range(2))
    mask = torch.zeros(shape, device="hpu")
    options = (0.0, False, None, "None", recompute)
    with pytest.raises(RuntimeError) as error:
        run(FusedSDPA.apply, q, k, v, mask, *options)
    assert str(error.value).splitlines()[0] == (
        f"attention_mask of shape {list(shape)} must broadcast to the scores' shape [1, 2, 4, 6]."
    )
