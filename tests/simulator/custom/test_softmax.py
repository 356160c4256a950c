"""Test softmax with scale and masks against float64: float32 within 1e-5, bfloat16 1e-2."""

from functools import partial

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import CustomSoftmax
from habana_frameworks.torch.hpex.kernels.Softmax import (
    RaggedSoftmax,
    triu_masked_softmax,
    valid_counts,
)
from in_modes import run
from operator_tensors import (
    assert_differentiates,
    assert_matches,
    on_device,
    random_tensor,
    random_tensors,
    rejects,
)

hpu_ops = torch.ops.hpu
assert_near = partial(assert_matches, reduced=1e-2)
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def masked(scores, seen):
    """Return the softmax over visible entries; rows without visible entries are zero."""
    raw = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
    return raw.nan_to_num(0.0).masked_fill(~seen, 0.0)


@TYPES
@pytest.mark.parametrize("of_mask", [(2, 3, 4, 8), (2, 1, 1, 8)], ids=str)
def test_mask_is_added_to_the_scaled_input(dtype, of_mask):
    x, mask = random_tensor(2, 3, 4, 8, dtype=dtype), random_tensor(*of_mask, dtype=dtype, seed=1)
    actual = hpu_ops.scaled_masked_softmax(x.to("hpu"), mask.to("hpu"), 0.5)
    assert_near(actual, torch.softmax(x.double() * 0.5 + mask.double(), -1), dtype)


@TYPES
def test_triangular_softmax_is_causal_and_accepts_its_own_statistics(dtype):
    x = random_tensor(3, 6, 6, dtype=dtype)
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
    ("shape", "rest", "message"),
    [
        ((3, 3), (), "Self tensor must be 3D."),
        ((2, 3, 4), (), "Self tensor must have as many rows as columns, but got shape [2, 3, 4]."),
        ((2, 3, 3), (ONE, None), "Inputs max and exp_sum_recpr must be both given or Null."),
        ((2, 3, 3), (ONE, ONE[:1]), "exp_sum_recpr and max inputs must have the same shape."),
        ((2, 3, 3), (ONE[:1], ONE[:1]), "must have shape [self_shape[0], self_shape[1], 1]."),
    ],
    ids=["2D", "rows", "one", "shapes", "shape"],
)
def test_invalid_triangular_softmax_is_rejected_with_the_vendors_message(shape, rest, message):
    rest = on_device(rest)
    with rejects(message):
        run(hpu_ops.scaled_triangular_softmax, torch.ones(shape, device="hpu"), 1.0, *rest)


@TYPES
@pytest.mark.parametrize("use_max", [True, False])
@pytest.mark.parametrize("rows", [6, 1])
def test_each_batch_group_attends_to_its_column_range(dtype, use_max, rows):
    x = random_tensor(4, rows, 6, dtype=dtype)
    pairs = torch.tensor([[1, 4], [0, 6]], dtype=torch.int32)
    start, end = pairs.repeat_interleave(2, 0)[:, :, None, None].unbind(1)
    column = torch.arange(6)
    seen = (column >= start) & (column < end)
    if rows > 1:
        seen = seen & (column <= torch.arange(rows)[:, None])
    expected = masked(x.double() * 0.5, seen.expand(4, rows, 6))
    actual = hpu_ops.scaled_masked_triangular_softmax(
        x.to("hpu"), pairs.to("hpu"), 0.5, 2, use_max, 0
    )
    assert_near(actual, expected, dtype)


def test_masked_triangular_softmax_may_return_fp8():
    x, pair = random_tensor(1, 4, 4, dtype=torch.bfloat16), torch.tensor([0, 4]).int()
    arguments = x.to("hpu"), pair.to("hpu"), 1.0, 1, True, 15
    expected = hpu_ops.scaled_masked_triangular_softmax(*arguments).float().cpu()
    actual = hpu_ops.scaled_masked_triangular_softmax(*arguments, torch.float8_e4m3fn)
    assert actual.dtype == torch.float8_e4m3fn
    torch.testing.assert_close(actual.float().cpu(), expected, rtol=0.07, atol=2.0**-9)


@pytest.mark.parametrize(
    ("shape", "group", "out_dtype", "message"),
    [
        ((4, 4), 1, None, "Input must be a 3D tensor."),
        ((2, 3, 4), 1, None, "Dim1 must equal (dim2 or 1)"),
        ((2, 4, 4), 0, None, "grouped_batch_size must be larger than 0."),
        ((2, 4, 4), 3, None, "dim0 must be a multiple of grouped_batch_size."),
        ((2, 4, 4), 1, torch.float8_e5m2, "must be fp8. Got: Float and Float8_e5m2"),
        ((2, 4, 4), 1, None, "1 batches of 2, but got 2 elements of dtype Int."),
    ],
    ids=["2D", "dim1", "zero", "multiple", "dtype", "pairs"],
)
def test_invalid_masked_triangular_softmax_is_rejected(shape, group, out_dtype, message):
    x, pair = torch.ones(shape, device="hpu"), torch.tensor([0, 4]).int().to("hpu")
    with rejects(message):
        run(hpu_ops.scaled_masked_triangular_softmax, x, pair, 1.0, group, True, 0, out_dtype)


@pytest.mark.parametrize(
    ("pair", "mode", "message"),
    [
        ([0.0, 4.0], 0, "of 1 batches of 1, but got 2 elements of dtype Float."),
        ([0, 4, 1], 0, "of 1 batches of 1, but got 3 elements of dtype Long."),
        ([0, 4], 2, "ScaledMaskedTriangularSoftmax mode must be 0, 1 or 15, but got 2."),
    ],
    ids=["dtype", "odd", "mode"],
)
def test_invalid_pairs_and_modes_are_rejected(pair, mode, message):
    x, pair = torch.ones(1, 4, 4, device="hpu"), torch.tensor(pair).to("hpu")
    with rejects(message):
        run(hpu_ops.scaled_masked_triangular_softmax, x, pair, 1.0, 1, True, mode)


@pytest.mark.parametrize("flavor", [0, 1, 2])
def test_custom_softmax_has_a_gradient(flavor):
    x = random_tensor(3, 8, dtype=torch.bfloat16)
    assert_differentiates(
        lambda leaf: CustomSoftmax.apply(leaf, flavor),
        lambda leaf: torch.softmax(leaf, -1),
        x,
        reduced=1e-2,
    )
    with pytest.raises(RuntimeError, match="flavor must be 0, 1 or 2, but got 3"):
        run(hpu_ops.custom_softmax, x.to("hpu"), 3)


@TYPES
@pytest.mark.parametrize(("shape", "dim"), [((4, 6), -1), ((2, 6, 3), 1)], ids=str)
def test_ragged_softmax_normalizes_the_first_entries_of_each_row(dtype, shape, dim):
    x, weights = random_tensor(*shape, dtype=dtype), random_tensor(*shape, dtype=dtype, seed=1)
    rows = x.movedim(dim, -1)
    counts = torch.arange(rows[..., 0].numel(), dtype=torch.int32).reshape(rows.shape[:-1])
    seen = (torch.arange(shape[dim]) < counts.unsqueeze(-1)).movedim(-1, dim)
    leaf, exact = x.to("hpu").requires_grad_(), x.double().requires_grad_()
    actual = RaggedSoftmax.apply(leaf, dim, False, counts.to("hpu"))
    scores = exact.masked_fill(~seen, -torch.inf)
    expected = torch.softmax(scores, dim).nan_to_num(0.0).masked_fill(~seen, 0.0)
    assert_near(actual.detach(), expected.detach(), dtype)
    actual.backward(weights.to("hpu"))
    plain = expected.detach()
    of_x = plain * (weights.double() - (plain * weights.double()).sum(dim, keepdim=True))
    assert_near(leaf.grad, of_x, dtype)


@pytest.mark.parametrize("shape", [(5, 5), (3, 4, 4), (2, 3, 4, 6)], ids=str)
def test_triangular_ragged_softmax_adds_one_entry_per_row(shape):
    x = random_tensor(*shape)
    expected = masked(x.double(), torch.ones(shape, dtype=torch.bool).tril())
    assert_near(triu_masked_softmax(x.to("hpu")), expected, torch.float32)
    assert valid_counts(2, 3, "hpu").tolist() == [1, 2, 3, 1, 2, 3]


def test_invalid_ragged_softmax_is_rejected():
    x, counts = torch.ones(2, 3, device="hpu"), torch.ones(2).int().to("hpu")
    with pytest.raises(RuntimeError) as error:
        run(hpu_ops.ragged_softmax, x, 1, True, counts)
    assert str(error.value).startswith("softmax with half to float conversion is not supported")
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
    x, mask = random_tensors((2, length, length), (2, 1, length), seed=seed)
    counts = torch.arange(2 * length) % length + seed
    return on_device((x, mask, pairs, counts))
