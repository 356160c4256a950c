"""Conversions between FP8 and wider types, compared with PyTorch for all bit patterns."""

import pytest
import torch

FORMATS = (torch.float8_e5m2, torch.float8_e4m3fn)


def every_value(dtype):
    """Return all values of bfloat16 in `dtype`, and for float32 also values next to them."""
    values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    if dtype == torch.bfloat16:
        return values
    bits = values.float().view(torch.int32)
    return torch.cat([bits + offset for offset in (-1, 0, 1, 0x8000)]).view(torch.float32)


def limit_of(fp8):
    return 57344.0 if fp8 == torch.float8_e5m2 else 240.0


def expected(values, fp8):
    return values.float().clamp(-limit_of(fp8), limit_of(fp8)).to(fp8)


@pytest.mark.parametrize("fp8", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cast_rounds_every_value_like_pytorch_and_saturates(fp8, dtype):
    values = every_value(dtype)
    result, _ = torch.ops.hpu.cast_to_fp8_v2(values.to("hpu"), None, False, False, fp8)
    # The sign of NaN is not kept.
    torch.testing.assert_close(
        result.cpu().float(), expected(values, fp8).float(), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("fp8", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cast_back_is_exact_for_all_bits(fp8, dtype):
    values = torch.arange(256, dtype=torch.uint8).view(fp8)
    result = torch.ops.hpu.cast_from_fp8(values.to("hpu"), None, dtype)
    torch.testing.assert_close(result.cpu(), values.to(dtype), rtol=0, atol=0, equal_nan=True)
    numbers = ~values.float().isnan()
    assert torch.equal(result.cpu().signbit()[numbers], values.float().signbit()[numbers])


@pytest.mark.parametrize("fp8", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stochastic_rounding_returns_one_of_the_two_neighbors(fp8, dtype):
    values = every_value(dtype)
    values = values[values.isfinite()]
    result, _ = torch.ops.hpu.cast_to_fp8_v2(values.to("hpu"), None, True, False, fp8)
    limit = limit_of(fp8)
    every = torch.arange(256, dtype=torch.uint8).view(fp8).float()
    every = every[every.abs() <= limit].unique()  # sorted
    bounded = values.float().clamp(-limit, limit)
    lower = every[torch.searchsorted(every, bounded, right=True) - 1]
    upper = every[torch.searchsorted(every, bounded)]
    rounded = result.cpu().float()
    assert ((rounded == lower) | (rounded == upper)).all()


@pytest.mark.parametrize("fp8", FORMATS)
def test_stochastic_rounding_is_unbiased_for_normal_and_subnormal_values(fp8):
    unit = 2.0**-16 if fp8 == torch.float8_e5m2 else 2.0**-9
    for value in (0.3 * unit, 1.75 * unit, 17.3, limit_of(fp8) * 0.99):
        many = torch.full((200_000,), value, device="hpu")
        result, _ = torch.ops.hpu.cast_to_fp8_v2(many, None, True, False, fp8)
        result = result.cpu().double()
        step = float(result.max() - result.min()) or unit
        assert abs(float(result.mean()) - value) < 0.01 * step


@pytest.mark.parametrize("fp8", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
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
    result, _ = torch.ops.hpu.cast_to_fp8_v2(values, None, False, False, fp8)
    assert torch.equal(result.cpu().float(), expected(values.cpu(), fp8).float())
    rounded, _ = torch.ops.hpu.cast_to_fp8_v2(values, None, True, False, fp8)
    assert rounded.shape == values.shape
