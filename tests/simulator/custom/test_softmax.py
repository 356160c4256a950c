"""Softmax with scale and masks, against float64: float32 within 1e-5, bfloat16 within 1e-2."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.hpex.kernels import CustomSoftmax  # noqa: E402
from habana_frameworks.torch.hpex.kernels.Softmax import (  # noqa: E402
    RaggedSoftmax,
    triu_masked_softmax,
    valid_counts,
)
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays, run  # noqa: E402

hpu_ops = torch.ops.hpu
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def samples(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(found, expected, dtype):
    assert (found.dtype, found.shape, found.device.type) == (dtype, expected.shape, "hpu")
    tolerance = 1e-5 if dtype is torch.float32 else 1e-2
    torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def masked(scores, seen):
    """Softmax of what is seen; rows that see nothing are zeros."""
    raw = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
    return raw.nan_to_num(0.0).masked_fill(~seen, 0.0)


@TYPES
@pytest.mark.parametrize("of_mask", [(2, 3, 4, 8), (2, 1, 1, 8)], ids=str)
def test_a_mask_is_added_to_the_scaled_input(dtype, of_mask):
    x, mask = samples(2, 3, 4, 8, dtype=dtype), samples(*of_mask, dtype=dtype, seed=1)
    found = hpu_ops.scaled_masked_softmax(x.to("hpu"), mask.to("hpu"), 0.5)
    assert_near(found, torch.softmax(x.double() * 0.5 + mask.double(), -1), dtype)


@TYPES
def test_the_triangular_softmax_sees_up_to_the_diagonal_and_can_be_repeated(dtype):
    x = samples(3, 6, 6, dtype=dtype)
    expected = masked(x.double() * 0.5, torch.ones(6, 6, dtype=torch.bool).tril())
    assert_near(hpu_ops.scaled_triangular_softmax(x.to("hpu"), 0.5), expected, dtype)
    out, inverse, largest = hpu_ops.scaled_triangular_softmax_retain(x.to("hpu"), 0.5)
    assert_near(out, expected, dtype)
    assert (inverse.dtype, inverse.shape) == (torch.float32, (3, 6, 1))
    assert (largest.dtype, largest.shape) == (dtype, (3, 6, 1))
    again = hpu_ops.scaled_triangular_softmax(x.to("hpu"), 0.5, inverse, largest)
    assert torch.equal(again.cpu(), out.cpu())


ONE = torch.ones(2, 3, 1)


@pytest.mark.parametrize(
    ("shape", "rest", "said"),
    [
        ((3, 3), (), "Self tensor must be 3D."),
        (
            (2, 3, 4),
            (),
            "Self tensor must have as many rows as columns, but has shape [2, 3, 4].",
        ),
        ((2, 3, 3), (ONE, None), "Inputs max and exp_sum_recpr must be both given or Null."),
        (
            (2, 3, 3),
            (ONE, ONE[:1]),
            "exp_sum_recpr and max inputs must have the same shape.",
        ),
        ((2, 3, 3), (ONE[:1], ONE[:1]), "must have shape [self_shape[0], self_shape[1], 1]."),
    ],
    ids=["2D", "rows", "one", "shapes", "shape"],
)
def test_what_the_triangular_softmax_does_not_take_is_refused_in_its_words(shape, rest, said):
    rest = [each if each is None else each.to("hpu") for each in rest]
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.scaled_triangular_softmax, torch.ones(shape, device="hpu"), 1.0, *rest)
    assert said in str(refused.value)


@TYPES
@pytest.mark.parametrize("use_max", [True, False])
@pytest.mark.parametrize("rows", [6, 1])
def test_each_group_of_batches_sees_the_columns_of_its_pair(dtype, use_max, rows):
    x = samples(4, rows, 6, dtype=dtype)
    pairs = torch.tensor([[1, 4], [0, 6]], dtype=torch.int32)
    start, end = pairs.repeat_interleave(2, 0)[:, :, None, None].unbind(1)
    column = torch.arange(6)
    seen = (column >= start) & (column < end)
    if rows > 1:
        seen = seen & (column <= torch.arange(rows)[:, None])
    expected = masked(x.double() * 0.5, seen.expand(4, rows, 6))
    found = hpu_ops.scaled_masked_triangular_softmax(
        x.to("hpu"), pairs.to("hpu"), 0.5, 2, use_max, 0
    )
    assert_near(found, expected, dtype)


def test_the_masked_triangular_softmax_may_give_fp8():
    x, pair = samples(1, 4, 4, dtype=torch.bfloat16), torch.tensor([0, 4]).int()
    given = x.to("hpu"), pair.to("hpu"), 1.0, 1, True, 15
    expected = hpu_ops.scaled_masked_triangular_softmax(*given).float().cpu()
    found = hpu_ops.scaled_masked_triangular_softmax(*given, torch.float8_e4m3fn)
    assert found.dtype == torch.float8_e4m3fn
    torch.testing.assert_close(found.float().cpu(), expected, rtol=0.07, atol=2.0**-9)


@pytest.mark.parametrize(
    ("shape", "group", "out_dtype", "said"),
    [
        ((4, 4), 1, None, "Input must be a 3D tensor."),
        ((2, 3, 4), 1, None, "Dim1 must equal (dim2 or 1)"),
        ((2, 4, 4), 0, None, "grouped_batch_size must be larger than 0."),
        ((2, 4, 4), 3, None, "dim0 must be a multiple of grouped_batch_size."),
        (
            (2, 4, 4),
            1,
            torch.float8_e5m2,
            "Input and output dtypes must be equal or input must be bfloat16 and output must be "
            "fp8. Got: Float and Float8_e5m2",
        ),
        (
            (2, 4, 4),
            1,
            None,
            "start_end must have a pair of integers for each group of 1 batches of 2, but has "
            "2 elements of dtype Int.",
        ),
    ],
    ids=["2D", "dim1", "zero", "multiple", "dtype", "pairs"],
)
def test_what_the_masked_triangular_softmax_does_not_take_is_refused(shape, group, out_dtype, said):
    x, pair = torch.ones(shape, device="hpu"), torch.tensor([0, 4]).int().to("hpu")
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.scaled_masked_triangular_softmax, x, pair, 1.0, group, True, 0, out_dtype)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("pair", "mode", "said"),
    [
        ([0.0, 4.0], 0, "of 1 batches of 1, but has 2 elements of dtype Float."),
        ([0, 4, 1], 0, "of 1 batches of 1, but has 3 elements of dtype Long."),
        ([0, 4], 2, "ScaledMaskedTriangularSoftmax mode must be 0, 1 or 15, but is 2."),
    ],
    ids=["dtype", "odd", "mode"],
)
def test_pairs_and_modes_that_mean_nothing_are_refused(pair, mode, said):
    x, pair = torch.ones(1, 4, 4, device="hpu"), torch.tensor(pair).to("hpu")
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.scaled_masked_triangular_softmax, x, pair, 1.0, 1, True, mode)
    assert said in str(refused.value)


@pytest.mark.parametrize("flavor", [0, 1, 2])
def test_the_custom_softmax_has_a_gradient(flavor):
    x = samples(3, 8, dtype=torch.bfloat16)
    leaf, exact = x.to("hpu").requires_grad_(), x.double().requires_grad_()
    found, expected = CustomSoftmax.apply(leaf, flavor), torch.softmax(exact, -1)
    weights = samples(3, 8, dtype=torch.bfloat16, seed=1)
    found.backward(weights.to("hpu"))
    expected.backward(weights.double())
    assert_near(found.detach(), expected.detach(), torch.bfloat16)
    assert_near(leaf.grad, exact.grad, torch.bfloat16)
    with pytest.raises(RuntimeError, match="flavor must be 0, 1 or 2, but is 3"):
        run(hpu_ops.custom_softmax, leaf.detach(), 3)


@TYPES
@pytest.mark.parametrize(("shape", "dim"), [((4, 6), -1), ((2, 6, 3), 1)], ids=str)
def test_the_ragged_softmax_normalizes_the_first_entries_of_each_row(dtype, shape, dim):
    x, weights = samples(*shape, dtype=dtype), samples(*shape, dtype=dtype, seed=1)
    rows = x.movedim(dim, -1)
    counts = torch.arange(rows[..., 0].numel(), dtype=torch.int32).reshape(rows.shape[:-1])
    seen = (torch.arange(shape[dim]) < counts.unsqueeze(-1)).movedim(-1, dim)
    leaf, exact = x.to("hpu").requires_grad_(), x.double().requires_grad_()
    found = RaggedSoftmax.apply(leaf, dim, False, counts.to("hpu"))
    scores = exact.masked_fill(~seen, -torch.inf)
    expected = torch.softmax(scores, dim).nan_to_num(0.0).masked_fill(~seen, 0.0)
    assert_near(found.detach(), expected.detach(), dtype)
    found.backward(weights.to("hpu"))
    plain = expected.detach()
    of_x = plain * (weights.double() - (plain * weights.double()).sum(dim, keepdim=True))
    assert_near(leaf.grad, of_x, dtype)


@pytest.mark.parametrize("shape", [(5, 5), (3, 4, 4), (2, 3, 4, 6)], ids=str)
def test_the_triangular_form_counts_one_entry_more_in_each_row(shape):
    x = samples(*shape)
    expected = masked(x.double(), torch.ones(shape, dtype=torch.bool).tril())
    assert_near(triu_masked_softmax(x.to("hpu")), expected, torch.float32)
    assert valid_counts(2, 3, "hpu").tolist() == [1, 2, 3, 1, 2, 3]


def test_what_the_ragged_softmax_does_not_take_is_refused():
    x, counts = torch.ones(2, 3, device="hpu"), torch.ones(2).int().to("hpu")
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.ragged_softmax, x, 1, True, counts)
    assert str(refused.value).startswith("softmax with half to float conversion is not supported")
    with pytest.raises(RuntimeError, match="must have an integer for each row of"):
        run(hpu_ops.ragged_softmax, x, 0, False, counts)


def everything(x, mask, pairs, counts):
    out, inverse, largest = hpu_ops.scaled_triangular_softmax_retain(x, 0.5)
    return (
        hpu_ops.scaled_masked_softmax(x, mask, 0.5),
        hpu_ops.scaled_triangular_softmax(x, 0.5, inverse, largest),
        *(out, inverse, largest),
        hpu_ops.scaled_masked_triangular_softmax(x, pairs, 0.5, 1, True, 0),
        hpu_ops.custom_softmax(x, 1),
        hpu_ops.ragged_softmax(x, -1, False, counts),
    )


def operands(length, seed=0):
    pairs = torch.tensor([[0, length], [1 + seed, length]]).int()
    made = samples(2, length, length, seed=seed), samples(2, 1, length, seed=seed + 1), pairs
    made = *made, torch.arange(2 * length) % length + seed
    return [each.to("hpu") for each in made]


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_softmax_is_that_of_eager_mode():
    assert_compiles(everything, operands(3), operands(5))


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_normalizes_what_lies_in_the_captured_inputs():
    assert_replays(everything, operands(3), operands(3, seed=1))
