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


def test_a_packed_zero_point_is_subtracted_in_eight_bits():
    values, zero = torch.arange(16).reshape(2, 8), torch.full((2, 8), 3)
    scale = torch.ones(2, 8)
    given = packed(zero).to("hpu"), torch.float32
    found = hpu_ops.convert_from_uint4(packed(values).to("hpu"), scale.to("hpu"), *given)
    assert torch.equal(found.cpu(), ((values - zero) % 256).float())
    signed = values - 8
    found = hpu_ops.convert_from_int4(packed(signed).to("hpu"), scale.to("hpu"), *given)
    assert torch.equal(found.cpu(), (signed - zero).float())


@pytest.mark.parametrize(
    ("given", "scale", "out_dtype", "said"),
    [
        (torch.ones(2, 1), torch.ones(2, 8), torch.float32, "must be of int32 with a dimension"),
        (
            torch.ones(2, 1).int(),
            torch.ones(3, 8),
            torch.float32,
            "scale must have the result's shape [2, 8] or a row for each group of its rows, but "
            "has shape [3, 8].",
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
