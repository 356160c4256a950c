"""Test ``torch._scaled_mm`` against float64: float32 within 1e-5, bfloat16 within 2**-8."""

from functools import partial

import pytest
import torch
from in_modes import run
from operator_tensors import E4M3, FORMATS, on_device, random_tensor, rejects

matrix = partial(random_tensor, dtype=E4M3)


def number(value):
    return torch.tensor(value).to("hpu")


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_product_is_scaled_and_biased(fp8, dtype, biased):
    a, b = matrix(3, 5, dtype=fp8), matrix(5, 7, dtype=fp8, seed=1)
    bias = torch.randn(7).to(dtype) if biased else None
    actual = torch._scaled_mm(
        *(a.to("hpu"), b.to("hpu"), number(0.5), number(4.0)),
        bias=bias if bias is None else bias.to("hpu"),
        out_dtype=dtype,
    )
    exact = a.double() @ b.double() * 2 + (bias.double() if biased else 0)
    assert (actual.dtype, actual.shape) == (dtype, (3, 7))
    within = 1e-5 if dtype is torch.float32 else 2**-8
    torch.testing.assert_close(actual.cpu().double(), exact, rtol=within, atol=1e-5)


def test_rows_and_columns_may_have_scales():
    a, b = matrix(3, 16), matrix(16, 16, seed=1)
    rows, columns = torch.rand(3, 1), torch.rand(1, 16)
    arguments = [each.to("hpu") for each in (a, b.t().contiguous().t(), rows, columns)]
    actual = torch._scaled_mm(*arguments, out_dtype=torch.float32)
    exact = a.double() @ b.double() * rows.double() * columns.double()
    torch.testing.assert_close(actual.cpu().double(), exact, rtol=1e-5, atol=1e-5)


def test_fp8_result_saturates_after_its_scale():
    a, b = (torch.full(shape, 8.0).to(E4M3) for shape in ((3, 5), (5, 7)))
    for scale, expected in ((0.25, 80.0), (8.0, 240.0)):
        arguments = a.to("hpu"), b.to("hpu"), number(1.0), number(1.0)
        actual = torch._scaled_mm(*arguments, scale_result=number(scale))
        assert actual.dtype == E4M3
        assert actual.float().unique().tolist() == [expected]


def test_result_is_written_to_out():
    a, b = matrix(3, 5).to("hpu"), matrix(5, 7, seed=1).to("hpu")
    out = torch.zeros(3, 7, device="hpu")
    actual = torch._scaled_mm(a, b, number(1.0), number(1.0), out_dtype=torch.float32, out=out)
    assert actual is out
    exact = a.cpu().double() @ b.cpu().double()
    torch.testing.assert_close(out.cpu().double(), exact, rtol=1e-5, atol=1e-5)


ONE = torch.tensor(1.0)


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        (matrix(3), matrix(3, 2), {}, "mat1 must be a matrix"),
        (matrix(2, 3), matrix(3), {}, "mat2 must be a matrix"),
        (*(matrix(2, 3), matrix(2, 3), {}), "shapes cannot be multiplied (2x3 and 2x3)"),
        (matrix(2, 3), matrix(3, 4), {"bias": torch.ones(3)}, "Bias must be size 4 but got 3"),
        (*(torch.ones(2, 3), matrix(3, 4), {}), "or Float8_e4m3fn matrix got Float"),
        (matrix(2, 3), matrix(3, 4), {}, "needs scale_result and no bias for a result of"),
    ],
    ids=["mat1", "mat2", "shapes", "bias", "dtype", "result"],
)
def test_invalid_product_is_rejected_with_the_vendors_message(a, b, options, message):
    options = {name: value.to("hpu") for name, value in options.items()}
    with rejects(message):
        run(torch._scaled_mm, a.to("hpu"), b.to("hpu"), ONE.to("hpu"), ONE.to("hpu"), **options)


def everything(a, b, one):
    return (
        torch._scaled_mm(a, b, one, one, out_dtype=torch.float32),
        torch._scaled_mm(a, b, one, one, scale_result=one),
    )


def operands(rows, seed=0):
    made = matrix(rows, 16, seed=seed), matrix(16, 32, seed=seed + 1), torch.tensor(0.5 + seed)
    return on_device(made)
