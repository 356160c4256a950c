"""``torch.ops.quantized_decomposed`` against float64: whole numbers exact, fp8 rounded once."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays, run  # noqa: E402

operators = torch.ops.quantized_decomposed
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LIMITS = {torch.int8: (-128, 127), torch.int32: (-(2**31), 2**31 - 1), E4M3: (-240, 240)}
LIMITS[E5M2] = (-57344, 57344)
TARGETS = pytest.mark.parametrize("target", LIMITS, ids=str)


def samples(*shape, seed=0):
    """Large numbers and, in every other row, small ones."""
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    made[::2] *= 100
    return made


def reference(units, zero, target):
    """Of values that are divided by their scale."""
    least, most = LIMITS[target]
    if target.is_floating_point:
        return torch.clamp(units + zero, least, most).float().to(target).double()
    return torch.clamp(torch.round(units) + zero, least, most)


@TARGETS
@pytest.mark.parametrize("form", ["numbers", "tensors", "bounds"])
def test_a_tensor_is_quantized_and_only_whole_numbers_are_rounded_first(target, form):
    x = samples(5, 16)
    scale, zero, bounds = 0.5, 3, LIMITS[target]
    if form != "numbers":
        scale, zero = torch.tensor(scale).to("hpu"), torch.tensor(zero).to("hpu")
    if form == "bounds":
        bounds = [torch.tensor(each).to("hpu") for each in bounds]
    found = operators.quantize_per_tensor(x.to("hpu"), scale, zero, *bounds, target)
    assert (found.dtype, found.device.type) == (target, "hpu")
    expected = reference(x.double() / 0.5, 3, target)
    assert torch.equal(found.cpu().double(), expected)
    if target.is_floating_point:
        assert (expected % 1 != 0).any()
    back = operators.dequantize_per_tensor(found, scale, zero, *bounds, target)
    assert back.dtype is torch.float32
    assert torch.equal(back.cpu().double(), (expected - 3) * 0.5)


@TARGETS
@pytest.mark.parametrize("axis", [0, -1])
def test_channels_have_a_scale_and_a_zero_point_each(target, axis):
    x = samples(4, 6)
    shape = (4, 1) if axis == 0 else (6,)
    scales = torch.tensor([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])[: shape[0]]
    zeros = torch.arange(shape[0])
    channels = scales.to("hpu"), zeros.to("hpu"), axis, *LIMITS[target], target
    found = operators.quantize_per_channel(x.to("hpu"), *channels)
    units = x.double() / scales.double().reshape(shape)
    expected = reference(units, zeros.reshape(shape), target)
    assert torch.equal(found.cpu().double(), expected)
    back = operators.dequantize_per_channel(found, *channels, out_dtype=torch.float32)
    restored = (expected - zeros.reshape(shape)) * scales.double().reshape(shape)
    assert torch.equal(back.cpu().double(), restored)
    unshifted = operators.dequantize_per_channel(
        found, channels[0], None, *channels[2:], out_dtype=torch.bfloat16
    )
    assert unshifted.dtype is torch.bfloat16
    exact = expected * scales.double().reshape(shape)
    torch.testing.assert_close(unshifted.cpu().double(), exact, rtol=2**-8, atol=0)


def test_bfloat16_is_divided_in_bfloat16():
    x = samples(64).to(torch.bfloat16)
    found = operators.quantize_per_tensor(x.to("hpu"), 0.3, 0, -128, 127, torch.int8)
    units = x * torch.tensor(1 / 0.3)
    assert torch.equal(found.cpu().double(), reference(units.double(), 0, torch.int8))


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (
            "quantize_per_tensor",
            (torch.ones(2).int(), 1.0, 0, 0, 1, torch.int8),
            "must have a floating-point dtype, but has Int.",
        ),
        (
            "quantize_per_tensor",
            (torch.ones(2), torch.ones(2), torch.zeros(1), 0, 1, torch.int8),
            "Quantization per tensor needs one scale, but has 2.",
        ),
        (
            "quantize_per_channel",
            (torch.ones(2, 3), torch.ones(3), torch.zeros(3), 0, 0, 1, torch.int8),
            "1D scales with an element for each channel of [2, 3] along axis 0, but got shape [3].",
        ),
        (
            "dequantize_per_tensor",
            (torch.ones(2).int(), 1.0, 0, 0, 1, torch.int8),
            "must have the dtype argument Char, but has Int.",
        ),
        (
            "quantize_per_tensor",
            (torch.ones(2), 1.0, 0, 0, 1, torch.float32),
            "must be an integer type, float8_e5m2 or float8_e4m3fn, but is Float.",
        ),
    ],
)
def test_what_is_not_quantized_is_refused(name, arguments, said):
    moved = [each.to("hpu") if isinstance(each, torch.Tensor) else each for each in arguments]
    with pytest.raises(RuntimeError) as refused:
        run(getattr(operators, name), *moved)
    assert said in str(refused.value)


def everything(x, scales, zeros):
    fp8 = operators.quantize_per_channel(x, scales, zeros, 1, -240, 240, E4M3)
    whole = operators.quantize_per_tensor(x, 0.5, 3, -128, 127, torch.int8)
    return (
        *(fp8, whole),
        operators.dequantize_per_channel(fp8, scales, zeros, 1, -240, 240, E4M3),
        operators.dequantize_per_tensor(whole, 0.5, 3, -128, 127, torch.int8),
    )


def operands(rows, seed=0):
    made = samples(rows, 4, seed=seed), torch.tensor([0.5, 1.0, 2.0, 4.0]), torch.arange(4)
    return [each.to("hpu") for each in made]


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_quantization_is_that_of_eager_mode():
    assert_compiles(everything, operands(3), operands(5))


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_quantizes_what_lies_in_the_captured_inputs():
    assert_replays(everything, operands(3), operands(3, seed=2))
