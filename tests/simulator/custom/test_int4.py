"""Weights of four bits, against the whole numbers that they hold: exact but for rounding."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays, run  # noqa: E402

hpu_ops = torch.ops.hpu
KINDS = pytest.mark.parametrize(
    ("operator", "lowest"),
    [(hpu_ops.convert_from_int4, -8), (hpu_ops.convert_from_uint4, 0)],
    ids=["int4", "uint4"],
)


def packed(values):
    """Whole numbers of four bits, eight in an int32 with the lowest first."""
    nibbles = (values.long() & 15).unflatten(-1, (-1, 8)) << torch.arange(0, 32, 4)
    return nibbles.sum(-1).to(torch.int32)


def whole_numbers(*shape, lowest=0, seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randint(lowest, lowest + 16, shape, generator=made)


@KINDS
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_element_holds_eight_values_with_the_lowest_first(operator, lowest, out_dtype):
    values = torch.arange(lowest, lowest + 16).repeat(2, 2)
    scale = torch.rand(2, 32)
    found = operator(packed(values).to("hpu"), scale.to("hpu"), None, out_dtype)
    assert (found.shape, found.dtype) == ((2, 32), out_dtype)
    assert torch.equal(found.cpu(), (values * scale).to(out_dtype))


@KINDS
def test_a_scale_and_a_zero_point_may_be_given_for_groups_of_rows(operator, lowest):
    values = whole_numbers(6, 16, lowest=lowest)
    scale, zero = torch.rand(2, 16), torch.randn(2, 16)
    expected = (values - zero.repeat_interleave(3, 0)) * scale.repeat_interleave(3, 0)
    given = packed(values).to("hpu"), scale.to("hpu"), zero.to("hpu")
    torch.testing.assert_close(operator(*given, torch.float32).cpu(), expected)


@KINDS
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_weight_below_its_packed_zero_point_is_negative(operator, lowest, out_dtype):
    values = torch.arange(lowest, lowest + 16).reshape(2, 8)
    scale = torch.full((2, 8), 0.25)
    for zero in range(lowest, lowest + 16):
        packed_zero = packed(torch.full((2, 8), zero)).to("hpu")
        found = operator(packed(values).to("hpu"), scale.to("hpu"), packed_zero, out_dtype)
        assert torch.equal(found.cpu(), (0.25 * (values - zero)).to(out_dtype))


def test_the_weights_of_a_gptq_checkpoint_are_those_of_its_layer():
    inner, outer, group = 32, 16, 8
    weight, zero = whole_numbers(inner, outer), whole_numbers(inner // group, outer, seed=1)
    scale = torch.rand(inner // group, outer).to(torch.bfloat16)
    device = (each.to("hpu") for each in (packed(weight), scale, packed(zero)))
    found = hpu_ops.convert_from_uint4(*device, torch.bfloat16)
    of_rows = (each.repeat_interleave(group, 0) for each in (zero, scale.float()))
    difference = weight - next(of_rows)
    assert (difference < 0).any()
    assert torch.equal(found.cpu(), (difference * next(of_rows)).to(torch.bfloat16))
    x = torch.randn(4, inner).to(torch.bfloat16)
    expected = x.double() @ found.cpu().double()
    torch.testing.assert_close(
        (x.to("hpu") @ found).cpu().double(), expected, rtol=1e-2, atol=1e-2 * expected.abs().max()
    )


@KINDS
@pytest.mark.parametrize(
    "shape", [(), (1,), (16,), (6, 1), (1, 16), (3, 6, 16), (3, 1, 16)], ids=str
)
def test_a_scale_and_a_zero_point_broadcast_to_the_weights(operator, lowest, shape):
    values = whole_numbers(3, 6, 16, lowest=lowest)
    scale, zero = torch.rand(shape), torch.randn(shape)
    given = packed(values).to("hpu"), scale.to("hpu"), zero.to("hpu")
    torch.testing.assert_close(operator(*given, torch.float32).cpu(), (values - zero) * scale)


@pytest.mark.parametrize(
    ("given", "scale", "out_dtype", "said"),
    [
        (torch.ones(2, 1), torch.ones(2, 8), torch.float32, "must be int32 with at least one"),
        (
            torch.ones(2, 1).int(),
            torch.ones(3, 8),
            torch.float32,
            "scale must broadcast to the result's shape [2, 8] or have a row for each group of its "
            "rows, but has shape [3, 8].",
        ),
        (torch.ones(2, 1).int(), torch.ones(2, 8), torch.int8, "must be a floating-point dtype"),
    ],
    ids=["float", "scale", "int8"],
)
def test_what_a_conversion_does_not_take_is_refused(given, scale, out_dtype, said):
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.convert_from_int4, given.to("hpu"), scale.to("hpu"), None, out_dtype)
    assert said in str(refused.value)


def everything(weights, scale, zero):
    return (
        hpu_ops.convert_from_int4(weights, scale, zero, torch.bfloat16),
        hpu_ops.convert_from_uint4(weights, scale, None, torch.float32),
    )


def operands(rows, seed=0):
    made = (
        packed(whole_numbers(2 * rows, 16, seed=seed)),
        torch.rand(rows, 16),
        packed(whole_numbers(rows, 16, seed=seed + 1)),
    )
    return [each.to("hpu") for each in made]


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_conversion_is_that_of_eager_mode():
    assert_compiles(everything, operands(3), operands(5))


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_converts_what_lies_in_the_captured_inputs():
    assert_replays(everything, operands(3), operands(3, seed=2))
