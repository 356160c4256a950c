"""Test packed int4 weights against their integers: exact except for rounding."""

import pytest
import torch
from in_modes import run
from operator_tensors import on_device, rejects

hpu_ops = torch.ops.hpu
KINDS = pytest.mark.parametrize(
    ("operator", "lowest"),
    [(hpu_ops.convert_from_int4, -8), (hpu_ops.convert_from_uint4, 0)],
    ids=["int4", "uint4"],
)


def packed(values):
    """Pack eight 4-bit integers into each int32, the lowest first."""
    nibbles = (values.long() & 15).unflatten(-1, (-1, 8)) << torch.arange(0, 32, 4)
    return nibbles.sum(-1).to(torch.int32)


def integers(*shape, lowest=0, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randint(lowest, lowest + 16, shape, generator=made)


@KINDS
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_int32_contains_eight_values_lowest_first(operator, lowest, out_dtype):
    values = torch.arange(lowest, lowest + 16).repeat(2, 2)
    scale = torch.rand(2, 32)
    actual = operator(packed(values).to("hpu"), scale.to("hpu"), None, out_dtype)
    assert (actual.shape, actual.dtype) == ((2, 32), out_dtype)
    assert torch.equal(actual.cpu(), (values * scale).to(out_dtype))


@KINDS
def test_scale_and_zero_point_may_apply_to_groups_of_rows(operator, lowest):
    values = integers(6, 16, lowest=lowest)
    scale, zero = torch.rand(2, 16), torch.randn(2, 16)
    expected = (values - zero.repeat_interleave(3, 0)) * scale.repeat_interleave(3, 0)
    arguments = packed(values).to("hpu"), scale.to("hpu"), zero.to("hpu")
    torch.testing.assert_close(operator(*arguments, torch.float32).cpu(), expected)


@KINDS
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weight_below_its_packed_zero_point_is_negative(operator, lowest, out_dtype):
    values = torch.arange(lowest, lowest + 16).reshape(2, 8)
    scale = torch.full((2, 8), 0.25)
    for zero in range(lowest, lowest + 16):
        packed_zero = packed(torch.full((2, 8), zero)).to("hpu")
        actual = operator(packed(values).to("hpu"), scale.to("hpu"), packed_zero, out_dtype)
        assert torch.equal(actual.cpu(), (0.25 * (values - zero)).to(out_dtype))


def test_gptq_checkpoint_is_converted():
    inner, outer, group = 32, 16, 8
    weight, zero = integers(inner, outer), integers(inner // group, outer, seed=1)
    scale = torch.rand(inner // group, outer).to(torch.bfloat16)
    device = (each.to("hpu") for each in (packed(weight), scale, packed(zero)))
    actual = hpu_ops.convert_from_uint4(*device, torch.bfloat16)
    of_rows = (each.repeat_interleave(group, 0) for each in (zero, scale.float()))
    difference = weight - next(of_rows)
    assert (difference < 0).any()
    assert torch.equal(actual.cpu(), (difference * next(of_rows)).to(torch.bfloat16))
    x = torch.randn(4, inner).to(torch.bfloat16)
    expected = x.double() @ actual.cpu().double()
    torch.testing.assert_close(
        (x.to("hpu") @ actual).cpu().double(), expected, rtol=1e-2, atol=1e-2 * expected.abs().max()
    )


@KINDS
@pytest.mark.parametrize(
    "shape", [(), (1,), (16,), (6, 1), (1, 16), (3, 6, 16), (3, 1, 16)], ids=str
)
def test_scale_and_zero_point_broadcast_to_the_weights(operator, lowest, shape):
    values = integers(3, 6, 16, lowest=lowest)
    scale, zero = torch.rand(shape), torch.randn(shape)
    arguments = packed(values).to("hpu"), scale.to("hpu"), zero.to("hpu")
    torch.testing.assert_close(operator(*arguments, torch.float32).cpu(), (values - zero) * scale)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_rows_may_be_in_any_group(dtype):
    values, zero = integers(6, 16), integers(3, 16, seed=1)
    scale, groups = torch.rand(3, 16), torch.tensor([2, 0, 1, 1, 0, 2], dtype=dtype)
    device = (each.to("hpu") for each in (packed(values), scale, packed(zero)))
    actual = hpu_ops.convert_from_uint4(*device, torch.float32, groups.to("hpu"))
    torch.testing.assert_close(actual.cpu(), (values - zero[groups]) * scale[groups])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (torch.tensor([0, 3]), "g_idx must contain indices of the rows of scale"),
        (torch.tensor([0, -1]), "g_idx must contain indices of the rows of scale"),
        (torch.tensor([0, 1, 1]), "of a 2D input as an integer, but got Long of shape [3] for"),
        (torch.tensor([0.0, 1.0]), "of a 2D input as an integer, but got Float of shape [2] for"),
    ],
    ids=["large", "negative", "long", "float"],
)
def test_wrong_groups_are_rejected(groups, message):
    weights, scale = packed(integers(2, 8)).to("hpu"), torch.ones(3, 8, device="hpu")
    with rejects(message):
        run(hpu_ops.convert_from_uint4, weights, scale, None, torch.float32, groups.to("hpu"))


@pytest.mark.parametrize(
    ("packed_weights", "scale", "out_dtype", "message"),
    [
        (torch.ones(2, 1), torch.ones(2, 8), torch.float32, "must be int32 with at least one"),
        (
            torch.ones(2, 1).int(),
            torch.ones(3, 8),
            torch.float32,
            "scale must broadcast to the result's shape [2, 8] or have a row for each group of its "
            "rows, but got shape [3, 8].",
        ),
        (torch.ones(2, 1).int(), torch.ones(2, 8), torch.int8, "must be a floating-point dtype"),
    ],
    ids=["float", "scale", "int8"],
)
def test_invalid_conversion_is_rejected(packed_weights, scale, out_dtype, message):
    with rejects(message):
        run(hpu_ops.convert_from_int4, packed_weights.to("hpu"), scale.to("hpu"), None, out_dtype)


def everything(weights, scale, zero, groups):
    return (
        hpu_ops.convert_from_uint4(weights, scale, zero, torch.float32, groups),
        hpu_ops.convert_from_int4(weights, scale, zero, torch.bfloat16),
        hpu_ops.convert_from_uint4(weights, scale, None, torch.float32),
    )


def operands(rows, seed=0):
    made = (
        packed(integers(2 * rows, 16, seed=seed)),
        torch.rand(rows, 16),
        packed(integers(rows, 16, seed=seed + 1)),
        integers(2 * rows, seed=seed) % rows,
    )
    return on_device(made)
