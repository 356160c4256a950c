"""Test FP8 scales, which are calculated from the values to cast, against float64."""

import pytest
import torch
from in_modes import run
from operator_tensors import E4M3, E5M2, FORMATS, on_device, random_tensors

cast_in_blocks = torch.ops.hpu.cast_to_fp8_just_in_time
calculate = torch.ops.hpu.calculate_scale_for_cast
NO_MAX, OF_TENSOR, OF_CHANNELS = range(3)
AS_IT_IS, TO_POWER_OF_TWO = range(2)
SMALLEST = torch.finfo(torch.float32).tiny


def cast(values, block, out_dtype=E4M3, scale_dtype=torch.float32):
    return run(
        cast_in_blocks, values.to("hpu"), block, out_dtype=out_dtype, scale_dtype=scale_dtype
    )


def samples(dtype):
    torch.manual_seed(0)
    return (torch.randn(3, 4, 5) * torch.tensor([1e-3, 1.0, 300.0]).reshape(3, 1, 1)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_scale_maps_the_largest_magnitude_to_the_largest_value(dtype):
    values = samples(dtype)
    scale = run(calculate, values.to("hpu"), OF_TENSOR, AS_IT_IS, fullscale=240.0, backoff=0.5)
    assert (scale.shape, scale.dtype, scale.device.type) == ((), torch.float32, "hpu")
    torch.testing.assert_close(scale.cpu().double(), values.double().abs().max() / 120)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("kept", [True, False])
def test_each_channel_has_its_own_scale(axis, kept):
    values = samples(torch.bfloat16)
    scale = run(
        *(calculate, values.to("hpu"), OF_CHANNELS, AS_IT_IS),
        reduceAxis=axis,
        reduceKeepdim=kept,
        fullscale=240.0,
    )
    expected = values.double().abs().amax(axis, keepdim=kept) / 240
    assert scale.shape == expected.shape
    torch.testing.assert_close(scale.cpu().double(), expected)


@pytest.mark.parametrize("mode", [OF_TENSOR, OF_CHANNELS])
def test_scale_of_zeros_has_a_finite_inverse(mode):
    scale = run(calculate, torch.zeros(2, 3, device="hpu"), mode, AS_IT_IS, fullscale=240.0)
    assert scale.cpu().unique().tolist() == [SMALLEST]
    assert (1 / scale).isfinite().all()


def test_scale_is_rounded_up_to_a_power_of_two():
    exponents = torch.arange(-126, 128)
    powers = torch.exp2(exponents.double()).float()
    above = torch.nextafter(powers, torch.tensor(torch.inf))[:-1]
    assert torch.equal(run(calculate, powers.to("hpu"), NO_MAX, TO_POWER_OF_TWO).cpu(), powers)
    assert torch.equal(run(calculate, above.to("hpu"), NO_MAX, TO_POWER_OF_TWO).cpu(), powers[1:])
    between = torch.tensor([0.75, 1.0078125, 3.0], dtype=torch.bfloat16)
    rounded = run(calculate, between.to("hpu"), NO_MAX, TO_POWER_OF_TWO)
    assert (rounded.dtype, rounded.tolist()) == (torch.bfloat16, [1, 2, 4])
    both = run(calculate, between.to("hpu"), OF_TENSOR, TO_POWER_OF_TWO, fullscale=240.0)
    assert both.item() == 2.0**-6


def test_scale_does_not_share_memory_with_its_input():
    values = torch.ones(3, device="hpu")
    scale = run(calculate, values, NO_MAX, AS_IT_IS)
    values.zero_()
    assert scale.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxMode": 3}, "maxMode must be .* but got 3"),
        ({"scaleMode": 2}, "scaleMode must be .* but got 2"),
        ({"fullscale": 0.0}, "fullscale and backoff must be positive, but got 0 and 1"),
    ],
)
def test_invalid_options_are_rejected(options, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        run(calculate, torch.ones(2, device="hpu"), **{"maxMode": 1, "scaleMode": 0, **options})


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.bfloat16], ids=str)
@FORMATS
@pytest.mark.parametrize(
    ("shape", "block"), [((2, 3, 8), (1, 4)), ((4, 8), (2, 4)), ((3, 6), (2, 4))], ids=str
)
def test_each_block_has_its_own_scale(shape, block, fp8, scale_dtype):
    made = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=made) * 10 ** torch.randn(shape, generator=made)
    result, scale = cast(values, block, fp8, scale_dtype)
    assert (result.shape, result.dtype, scale.dtype) == (values.shape, fp8, scale_dtype)
    largest = 57344.0 if fp8 is E5M2 else 240.0
    rows, columns = (-(-size // of) for size, of in zip(shape[-2:], block, strict=True))
    assert scale.shape == (*shape[:-2], rows, columns)
    for row in range(rows):
        for column in range(columns):
            here = (
                ...,
                slice(row * block[0], (row + 1) * block[0]),
                slice(column * block[1], (column + 1) * block[1]),
            )
            factor = (values[here].abs().amax((-2, -1)) / largest).to(scale_dtype)
            assert torch.equal(scale[..., row, column].cpu(), factor)
            exact = values[here] / factor.float()[..., None, None]
            expected = exact.clamp(-largest, largest).to(fp8).float()
            assert torch.equal(result[here].cpu().float(), expected)


def test_block_of_zeros_stays_zero_with_a_positive_scale():
    result, scale = cast(torch.zeros(2, 4), [1, 2], scale_dtype=torch.bfloat16)
    assert result.float().tolist() == [[0.0] * 4] * 2
    assert scale.isfinite().all().item()
    assert (scale > 0).all().item()


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (0, 4, 4), (2, 0, 4)], ids=str)
def test_empty_tensor_is_cast_in_blocks(shape):
    result, scale = cast(torch.zeros(shape), [2, 2])
    assert (result.shape, result.dtype) == (shape, E4M3)
    assert scale.shape == (*shape[:-2], -(-shape[-2] // 2), -(-shape[-1] // 2))
    if shape == (0, 4):  # an expert without tokens
        weight, of_weight = cast(torch.ones(4, 4), [2, 2])
        operands = result, False, weight, False, None, torch.float32, scale, of_weight
        product = run(torch.ops.hpu.fp8_gemm_v2, *operands)
        assert product.shape == (0, 4)


@pytest.mark.parametrize(
    ("values", "block", "dtypes", "sentence"),
    [
        (torch.ones(4), [1, 2], (E4M3, torch.float32), "but got Float of shape .4."),
        (torch.ones(2, 4), [2], (E4M3, torch.float32), "numbers, but got .2."),
        (torch.ones(2, 4), [1, 0], (E4M3, torch.float32), "numbers, but got .1, 0."),
        (torch.ones(2, 4), [1, 2], (torch.int8, torch.float32), "but got Char and Float"),
        (torch.ones(2, 4), [1, 2], (E4M3, torch.half), "e4m3fn and Half"),
    ],
    ids=["1D", "block", "empty block", "out dtype", "scale dtype"],
)
def test_invalid_blocks_are_rejected(values, block, dtypes, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        cast(values, block, *dtypes)


def operands(rows, seed=0):
    return on_device(random_tensors((rows, 5), seed=seed))


def everything(values):
    whole = calculate(values, OF_TENSOR, TO_POWER_OF_TWO, fullscale=240.0)
    of_channels = calculate(values, OF_CHANNELS, TO_POWER_OF_TWO, -1, True, 240.0, 0.5)
    types = {"out_dtype": E4M3, "scale_dtype": torch.bfloat16}
    return whole, of_channels, *cast_in_blocks(values, [1, 4], **types)
