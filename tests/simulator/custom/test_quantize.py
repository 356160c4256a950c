"""Test ``torch.ops.quantized_decomposed`` against float64: integers exact, FP8 rounded once."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from in_modes import run
from operator_tensors import E4M3, E5M2, on_device, random_tensor, rejects

operators = torch.ops.quantized_decomposed
LIMITS = {torch.int8: (-128, 127), torch.int32: (-(2**31), 2**31 - 1), E4M3: (-240, 240)}
LIMITS[E5M2] = (-57344, 57344)
TARGETS = pytest.mark.parametrize("target", LIMITS, ids=str)


def samples(*shape, seed=0):
    """Return alternating rows of large and small numbers."""
    values = random_tensor(*shape, seed=seed)
    values[::2] *= 100
    return values


def reference(units, zero, target):
    """Quantize values that are already divided by their scale."""
    least, most = LIMITS[target]
    if target.is_floating_point:
        return torch.clamp(units + zero, least, most).float().to(target).double()
    return torch.clamp(torch.round(units) + zero, least, most)


@TARGETS
@pytest.mark.parametrize("form", ["numbers", "tensors", "bounds"])
def test_tensor_is_rounded_before_the_shift_only_for_integers(target, form):
    x = samples(5, 16)
    scale, zero, bounds = 0.5, 3, LIMITS[target]
    if form != "numbers":
        scale, zero = torch.tensor(scale).to("hpu"), torch.tensor(zero).to("hpu")
    if form == "bounds":
        bounds = [torch.tensor(each).to("hpu") for each in bounds]
    actual = operators.quantize_per_tensor(x.to("hpu"), scale, zero, *bounds, target)
    assert (actual.dtype, actual.device.type) == (target, "hpu")
    expected = reference(x.double() / 0.5, 3, target)
    assert torch.equal(actual.cpu().double(), expected)
    if target.is_floating_point:
        assert (expected % 1 != 0).any()
    back = operators.dequantize_per_tensor(actual, scale, zero, *bounds, target)
    assert back.dtype is torch.float32
    assert torch.equal(back.cpu().double(), (expected - 3) * 0.5)


@TARGETS
@pytest.mark.parametrize("axis", [0, -1])
def test_each_channel_has_its_own_scale_and_zero_point(target, axis):
    x = samples(4, 6)
    shape = (4, 1) if axis == 0 else (6,)
    scales = torch.tensor([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])[: shape[0]]
    zeros = torch.arange(shape[0])
    channels = scales.to("hpu"), zeros.to("hpu"), axis, *LIMITS[target], target
    actual = operators.quantize_per_channel(x.to("hpu"), *channels)
    units = x.double() / scales.double().reshape(shape)
    expected = reference(units, zeros.reshape(shape), target)
    assert torch.equal(actual.cpu().double(), expected)
    back = operators.dequantize_per_channel(actual, *channels, out_dtype=torch.float32)
    restored = (expected - zeros.reshape(shape)) * scales.double().reshape(shape)
    assert torch.equal(back.cpu().double(), restored)
    unshifted = operators.dequantize_per_channel(
        actual, channels[0], None, *channels[2:], out_dtype=torch.bfloat16
    )
    assert unshifted.dtype is torch.bfloat16
    exact = expected * scales.double().reshape(shape)
    torch.testing.assert_close(unshifted.cpu().double(), exact, rtol=2**-8, atol=0)


def test_bfloat16_is_divided_by_the_scale_in_bfloat16():
    x = samples(64).to(torch.bfloat16)
    actual = operators.quantize_per_tensor(x.to("hpu"), 0.3, 0, -128, 127, torch.int8)
    units = x * torch.tensor(1 / 0.3)
    assert torch.equal(actual.cpu().double(), reference(units.double(), 0, torch.int8))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "quantize_per_tensor",
            (torch.ones(2).int(), 1.0, 0, 0, 1, torch.int8),
            "must have a floating-point dtype, but got Int.",
        ),
        (
            "quantize_per_tensor",
            (torch.ones(2), torch.ones(2), torch.zeros(1), 0, 1, torch.int8),
            "Quantization per tensor needs one scale, but got 2.",
        ),
        (
            "quantize_per_channel",
            (torch.ones(2, 3), torch.ones(3), torch.zeros(3), 0, 0, 1, torch.int8),
            "1D scales with an element for each channel of [2, 3] along axis 0, but got shape [3].",
        ),
        (
            "dequantize_per_tensor",
            (torch.ones(2).int(), 1.0, 0, 0, 1, torch.int8),
            "must have the dtype argument Char, but got Int.",
        ),
        (
            "quantize_per_tensor",
            (torch.ones(2), 1.0, 0, 0, 1, torch.float32),
            "must be an integer type, float8_e5m2 or float8_e4m3fn, but got Float.",
        ),
    ],
)
def test_invalid_quantization_is_rejected(name, arguments, message):
    moved = on_device(arguments)
    with rejects(message):
        run(getattr(operators, name), *moved)


def everything(x, scales, zeros):
    fp8 = operators.quantize_per_channel(x, scales, zeros, 1, -240, 240, E4M3)
    integers = operators.quantize_per_tensor(x, 0.5, 3, -128, 127, torch.int8)
    return (
        *(fp8, integers),
        operators.dequantize_per_channel(fp8, scales, zeros, 1, -240, 240, E4M3),
        operators.dequantize_per_tensor(integers, 0.5, 3, -128, 127, torch.int8),
    )


def operands(rows, seed=0):
    made = samples(rows, 4, seed=seed), torch.tensor([0.5, 1.0, 2.0, 4.0]), torch.arange(4)
    return on_device(made)
