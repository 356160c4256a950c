"""Test casts to and from FP8 against all values of the two formats and PyTorch's casts."""

import pytest
import torch
from habana_frameworks.torch import hpu
from in_modes import run
from operator_tensors import E4M3, E5M2, FORMATS, on_device, random_tensor, rejects

hpu_ops = torch.ops.hpu
LARGEST = {E5M2: 57344.0, E4M3: 240.0}  # on Gaudi 2
BOTH_INPUTS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def values_of(fp8):
    """Return all finite values of a format on Gaudi 2 in float64, in ascending order."""
    every = torch.arange(256, dtype=torch.uint8).view(fp8).double()
    return torch.unique(every[every.abs() <= LARGEST[fp8]])


def neighbors(numbers, fp8):
    """Return each number's neighbors in a format, which are equal if it is representable."""
    values = values_of(fp8)
    clamped = numbers.double().clamp(-LARGEST[fp8], LARGEST[fp8])
    below = values[torch.searchsorted(values, clamped, right=True) - 1]
    above = values[torch.searchsorted(values, clamped)]
    return below, above


def nearest(numbers, fp8):
    """Return each number rounded to the nearest value, ties to even, and saturated."""
    below, above = neighbors(numbers, fp8)
    clamped = numbers.double().clamp(-LARGEST[fp8], LARGEST[fp8])
    to_below, to_above = clamped - below, above - clamped
    even = (below.to(fp8).view(torch.uint8) & 1) == 0
    down = (to_below < to_above) | ((to_below == to_above) & even)
    return torch.where(down, below, above)


def samples():
    """Return numbers over the range of both formats, with all values, midpoints and zeros."""
    torch.manual_seed(0)
    spread = torch.randn(4096) * torch.exp2(torch.randint(-20, 18, (4096,)).float())
    values = torch.cat([values_of(E5M2), values_of(E4M3)])
    midpoints = (values[1:] + values[:-1]) / 2
    return torch.cat([spread, values.float(), midpoints.float(), torch.tensor([0.0, -0.0])])


def every_value(dtype):
    """Return all values of bfloat16 in `dtype`, and for float32 also values next to them."""
    values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    if dtype == torch.bfloat16:
        return values
    bits = values.float().view(torch.int32)
    return torch.cat([bits + offset for offset in (-1, 0, 1, 0x8000)]).view(torch.float32)


@FORMATS
def test_cast_rounds_every_value_like_pytorch_and_saturates(fp8):
    values = every_value(torch.float32)
    result, _ = hpu_ops.cast_to_fp8_v2(values.to("hpu"), None, False, False, fp8)
    expected = values.clamp(-LARGEST[fp8], LARGEST[fp8]).to(fp8).float()
    # The sign of NaN is not kept.
    torch.testing.assert_close(result.cpu().float(), expected, rtol=0, atol=0, equal_nan=True)


@FORMATS
@pytest.mark.parametrize("scale", [None, 1.0, 0.3, 2.0**-80, 2.0**100], ids=str)
def test_every_bfloat16_value_is_cast_for_any_strides(fp8, scale):
    every = torch.arange(65536).to(torch.uint16).view(torch.bfloat16)
    factor = None if scale is None else torch.tensor(scale)
    scaled = every if factor is None else every * factor.to(torch.bfloat16)
    for whole in (every, every[7:], every.reshape(256, 256).t(), every.reshape(256, 256)[:, 3:]):
        expected = scaled.as_strided(whole.shape, whole.stride(), whole.storage_offset())
        device = every.to("hpu").as_strided(whole.shape, whole.stride(), whole.storage_offset())
        out, _ = hpu_ops.cast_to_fp8_v2(
            device, None if scale is None else factor.to("hpu"), dtype=fp8
        )
        nan = expected.isnan()
        assert torch.equal(out.cpu().float().isnan(), nan)
        assert torch.equal(out.cpu().double()[~nan], nearest(expected[~nan], fp8))


@FORMATS
@BOTH_INPUTS
@pytest.mark.parametrize(
    "view",
    [
        lambda values: values[:0],
        lambda values: values.t(),
        lambda values: values[:, ::3],
        lambda values: values[:1].expand(7, 400),
        lambda values: values.flatten()[1:70_000],
    ],
    ids=["empty", "transposed", "strided", "expanded", "offset"],
)
def test_cast_of_a_view_keeps_its_shape_and_values(view, dtype, fp8):
    values = view(torch.randn(300, 400).mul(100).to(dtype).to("hpu"))
    result, _ = hpu_ops.cast_to_fp8_v2(values, None, False, False, fp8)
    assert torch.equal(result.cpu().double(), nearest(values.cpu(), fp8))
    rounded, _ = hpu_ops.cast_to_fp8_v2(values, None, True, False, fp8)
    assert rounded.shape == values.shape


@FORMATS
@BOTH_INPUTS
def test_scale_is_applied_in_the_input_type(fp8, dtype):
    numbers = samples().to(dtype)
    scale = torch.tensor([0.3])
    expected = nearest(numbers * scale.to(dtype), fp8)
    device = numbers.to("hpu")
    by_tensor, amax = hpu_ops.cast_to_fp8_v2(device, scale.to("hpu"), False, True, fp8)
    by_number, _ = hpu_ops.cast_to_fp8_v2(device, 0.3, dtype=fp8)
    by_list, _ = hpu_ops.cast_to_fp8_v2(device, [0.3], dtype=fp8)
    for out in (by_tensor, by_number, by_list):
        assert torch.equal(out.cpu().double(), expected)
    assert (amax.dtype, amax.shape) == (torch.float32, ())
    assert amax.item() == numbers.float().abs().max().item()


@pytest.mark.parametrize(
    ("scale", "shape"),
    [
        (torch.tensor([1.0, 0.5, 2.0, 8.0]), None),
        (torch.tensor([[1.0], [0.25], [4.0]]), None),
        (torch.tensor([1.0, 0.25, 4.0]), [3, 1]),
        (torch.tensor([3.0]), [3, 1]),  # the shape of a single element is ignored
    ],
    ids=["last", "rows", "reshaped", "one"],
)
def test_scale_with_several_elements_applies_per_channel(scale, shape):
    numbers = torch.randn(2, 3, 4) * 10
    factor = scale if shape is None or scale.numel() == 1 else scale.reshape(shape)
    expected = nearest(numbers * factor, E4M3)
    out, _ = hpu_ops.cast_to_fp8_v2(
        numbers.to("hpu"), scale.to("hpu"), dtype=E4M3, scale_shape=shape
    )
    assert torch.equal(out.cpu().double(), expected)
    if scale.dim() == 1:
        listed, _ = hpu_ops.cast_to_fp8_v2(
            numbers.to("hpu"), scale.tolist(), dtype=E4M3, scale_shape=shape
        )
        assert torch.equal(listed.cpu().double(), expected)
    inverse = hpu_ops.cast_from_fp8(out, (1 / scale).to("hpu"), torch.float32, shape)
    torch.testing.assert_close(inverse.cpu(), expected.float() / factor)


def test_scale_shape_with_another_number_of_elements_is_rejected():
    numbers = torch.ones(2, 3, device="hpu")
    with pytest.raises(
        RuntimeError, match=r"scale elements \(3\) is not equal .* scale_shape elements \(4\)"
    ):
        run(hpu_ops.cast_to_fp8_v2, numbers, [1.0, 2.0, 3.0], dtype=E4M3, scale_shape=[4, 1])


def test_stochastic_rounding_follows_the_device_seed():
    numbers = torch.randn(1000).to("hpu")

    def draw(seed):
        hpu.manual_seed(seed)
        return hpu_ops.cast_to_fp8_v2(numbers, None, True, False, E5M2)[0].cpu().view(torch.uint8)

    before = torch.get_rng_state()
    first = draw(1)
    assert torch.equal(draw(1), first)
    assert not torch.equal(draw(2), first)
    assert torch.equal(torch.get_rng_state(), before)  # the CPU generator is not used


@FORMATS
@BOTH_INPUTS
def test_stochastic_rounding_returns_one_of_the_two_neighbors(fp8, dtype):
    values = every_value(dtype)
    values = values[values.isfinite()]
    result, _ = hpu_ops.cast_to_fp8_v2(values.to("hpu"), None, True, False, fp8)
    below, above = neighbors(values, fp8)
    rounded = result.cpu().double()
    assert ((rounded == below) | (rounded == above)).all()


@FORMATS
def test_stochastic_rounding_is_unbiased_for_normal_and_subnormal_values(fp8):
    unit = 2.0**-16 if fp8 == E5M2 else 2.0**-9
    for value in (0.3 * unit, 1.75 * unit, 17.3, LARGEST[fp8] * 0.99):
        many = torch.full((200_000,), value, device="hpu")
        result = hpu_ops.cast_to_fp8_v2(many, None, True, False, fp8)[0].cpu().double()
        step = float(result.max() - result.min()) or unit
        assert abs(float(result.mean()) - value) < 0.01 * step


def test_fp8_input_is_copied_unchanged():
    numbers = torch.randn(5).to("hpu").to(E4M3)
    out, amax = hpu_ops.cast_to_fp8_v2(numbers, 2.0, dtype=E4M3)
    assert torch.equal(out.cpu().view(torch.uint8), numbers.cpu().view(torch.uint8))
    assert amax.numel() == 0
    assert out.data_ptr() != numbers.data_ptr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((E4M3, 1.0, False, True, E4M3), "CastToFp8V2 must have no amax for float8."),
        ((E5M2, 1.0, False, False, E4M3), "but are Float8_e5m2 and Float8_e4m3fn"),
        ((torch.float16, 1.0, False, False, E4M3), "bfloat16, float8_e5m2, float8_e4m3fn]."),
        ((torch.float32, 1.0), "hpu::cast_to_fp8_v2 needs its argument 'dtype', but it is None."),
        ((torch.float32, 1.0, False, False, torch.int8), "float8_e4m3fn], but is Char."),
    ],
    ids=["amax", "other format", "half", "no dtype", "int8"],
)
def test_invalid_cast_is_rejected_with_the_vendors_message(arguments, message):
    dtype, *rest = arguments
    with rejects(message):
        run(hpu_ops.cast_to_fp8_v2, torch.ones(2, device="hpu").to(dtype), *rest)


def test_older_cast_writes_into_its_outputs():
    numbers = torch.randn(3, 4) * 100
    for out_dtype in (E5M2, E4M3):
        base = torch.zeros(4, 4, dtype=out_dtype, device="hpu")
        out, amax = base[1:], torch.zeros((), device="hpu")
        scale = torch.tensor(0.5, device="hpu")
        returned = hpu_ops.cast_to_fp8(numbers.to("hpu"), scale, False, out, amax)
        assert torch.equal(base.cpu()[1:].double(), nearest(numbers * 0.5, out_dtype))
        assert torch.equal(base.cpu()[0].double(), torch.zeros(4).double())
        assert amax.item() == numbers.abs().max().item()
        assert [each.data_ptr() for each in returned] == [out.data_ptr(), amax.data_ptr()]
    with pytest.raises(RuntimeError, match="Input and output must have the same shape"):
        run(hpu_ops.cast_to_fp8, torch.ones(3, device="hpu"), None, False, out, amax)
    numbers = torch.ones(3, 4, device="hpu").int()
    with pytest.raises(RuntimeError, match="CastToFp8 input must be of float or bfloat16 dtype"):
        run(hpu_ops.cast_to_fp8, numbers, None, False, out, amax)


def test_hybrid_cast_returns_both_formats_with_their_own_scales():
    numbers = torch.randn(64) * 100
    five, four, amax = hpu_ops.cast_to_fp8_hybrid(
        numbers.to("hpu"),
        torch.tensor(4.0, device="hpu"),
        torch.tensor(0.25, device="hpu"),
        stochastic_rounding=True,
        is_amax=True,
    )
    below, above = neighbors(numbers * 4, E5M2)
    assert ((five.cpu().double() == below) | (five.cpu().double() == above)).all()
    assert torch.equal(four.cpu().double(), nearest(numbers * 0.25, E4M3))  # never stochastic
    assert amax.item() == numbers.abs().max().item()


@FORMATS
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cast_from_fp8_multiplies_in_the_result_type(fp8, out_dtype):
    numbers = torch.arange(256, dtype=torch.uint8).view(fp8)
    not_nan = ~numbers.float().isnan()
    scale = torch.tensor(0.3)
    device = numbers.to("hpu")
    for factor in (scale.to("hpu"), 0.3, [0.3], None):
        back = hpu_ops.cast_from_fp8(device, factor, out_dtype).cpu()
        expected = numbers.to(out_dtype) * (1 if factor is None else scale.to(out_dtype))
        torch.testing.assert_close(back, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(back.signbit()[not_nan], expected.signbit()[not_nan])
    with pytest.raises(RuntimeError, match="output dtype must be equal to float or bfloat16"):
        run(hpu_ops.cast_from_fp8, device, None, torch.float16)


def test_cpu_tensors_are_rejected():
    with pytest.raises(NotImplementedError, match="CPU"):
        hpu_ops.cast_to_fp8_v2(torch.ones(2), dtype=E4M3)


def test_fake_tensors_have_the_shape_and_type_of_a_cast():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        numbers = torch.empty(3, 4, device="hpu")
        out, amax = hpu_ops.cast_to_fp8_v2(numbers, None, True, True, E5M2)
        back = hpu_ops.cast_from_fp8(out, 2.0, torch.bfloat16)
    assert (out.shape, out.dtype, out.device.type) == ((3, 4), E5M2, "hpu")
    assert (amax.shape, amax.dtype) == ((), torch.float32)
    assert (back.shape, back.dtype) == ((3, 4), torch.bfloat16)


@pytest.mark.parametrize("shape", [(3, 1), (2, 1, 1), (3, 4)], ids=str)
def test_scale_that_would_enlarge_the_result_is_rejected(shape):
    numbers, scale = torch.ones(1, 4, device="hpu"), torch.ones(shape, device="hpu")
    message = "A scale must broadcast to the shape [1, 4] of the values, but got shape"
    with rejects(message):
        run(hpu_ops.cast_to_fp8_v2, numbers, scale, False, False, E4M3)
    eight = numbers.to(E4M3)
    with rejects(message):
        run(hpu_ops.cast_from_fp8, eight, scale, torch.float32)


def everything(numbers):
    cast, amax = hpu_ops.cast_to_fp8_v2(numbers, 2.0, False, True, E4M3)
    return cast, hpu_ops.cast_from_fp8(cast, 0.5, torch.bfloat16), amax


def operands(rows, seed=0):
    return on_device([random_tensor(rows, 4, seed=seed) * 50])
