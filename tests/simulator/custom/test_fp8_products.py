"""Test FP8 products, convolutions, sums and softmax against float64.

Tolerances: float32 results 1e-5 of the largest magnitude, bfloat16 results 2**-8 more.
"""

import pytest
import torch
from in_modes import run
from operator_tensors import E4M3, E5M2, FORMATS, on_device, random_tensor, rejects

hpu_ops = torch.ops.hpu
BOTH_OUTPUTS = pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16], ids=str)


def fp8_tensor(*shape, fp8=E4M3, seed=0):
    return random_tensor(*shape, seed=seed).mul(4).to(fp8)


def assert_near(actual, expected, out_dtype):
    assert (actual.dtype, actual.device.type, actual.shape) == (out_dtype, "hpu", expected.shape)
    rtol = 2.0**-8 if out_dtype is torch.bfloat16 else 1e-5
    magnitude = expected.abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=rtol, atol=1e-5 * magnitude)


@FORMATS
@BOTH_OUTPUTS
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
def test_product_is_multiplied_by_both_scales(fp8, out_dtype, trans_a, trans_b):
    a, b = fp8_tensor(5, 7, fp8=fp8), fp8_tensor(7, 3, fp8=fp8, seed=1)
    bias, d = torch.randn(3), torch.randn(5, 3)
    expected = a.double() @ b.double() * 0.5 * 0.3 + bias.double() + d.double()
    arguments = (
        (a.t().contiguous() if trans_a else a).to("hpu"),
        trans_a,
        (b.t().contiguous() if trans_b else b).to("hpu"),
        trans_b,
        d.to("hpu"),
        out_dtype,
    )
    rest = (bias.to("hpu"), True)
    scales = torch.tensor(0.5, device="hpu"), torch.tensor([0.3], device="hpu")
    assert_near(hpu_ops.fp8_gemm_v2(*arguments, *scales, *rest), expected, out_dtype)
    assert_near(hpu_ops.fp8_gemm_v2(*arguments, 0.5, 0.3, *rest), expected, out_dtype)
    assert_near(hpu_ops.fp8_gemm_v2(*arguments, [0.5], [0.3], *rest), expected, out_dtype)
    out = torch.empty(4, 5, 3, dtype=out_dtype, device="hpu")
    returned = hpu_ops.fp8_gemm(*arguments, *scales, *rest, out[2])
    assert returned.data_ptr() == out[2].data_ptr()
    assert_near(out[2], expected, out_dtype)


@FORMATS
@BOTH_OUTPUTS
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.3, 0.7), (2.0**-80, 2.0**90)], ids=str)
def test_large_product_is_as_exact_as_a_small_one(fp8, out_dtype, trans_a, trans_b, scales):
    """The CPU may use a faster kernel for large sizes, which rounds the bias to the result type."""
    a, b = fp8_tensor(96, 128, fp8=fp8), fp8_tensor(128, 160, fp8=fp8, seed=1)
    bias = torch.randn(160).to(out_dtype)
    arguments = (
        (a.t().contiguous() if trans_a else a).to("hpu"),
        trans_a,
        (b.to("hpu").t() if trans_b else b.to("hpu")),
        trans_b,
    )
    of_a, of_b = (torch.tensor([scale]) for scale in scales)
    product = a.double() @ b.double() * of_a.double() * of_b.double()
    for term in (None, bias.to("hpu")):
        actual = hpu_ops.fp8_gemm_v2(
            *arguments, None, out_dtype, of_a.to("hpu"), of_b.to("hpu"), term
        )
        expected = product + (0.0 if term is None else bias.double())
        assert_near(actual, expected, out_dtype)
    rows = torch.rand(96, 1)
    actual = hpu_ops.fp8_gemm_v2(*arguments, None, out_dtype, None, rows.to("hpu"))
    assert_near(actual, a.double() @ b.double() * rows.double(), out_dtype)


@BOTH_OUTPUTS
@FORMATS
def test_operands_may_have_any_strides(fp8, out_dtype):
    whole = fp8_tensor(4, 128, 3, 128, fp8=fp8).to("hpu")
    spread = whole[1, :, 2]  # not contiguous
    repeated = whole[0, 0, 0, :1].expand(128, 96)
    for a, b in ((spread, spread), (spread.t(), repeated), (whole[2, :, 0], spread.t())):
        actual = hpu_ops.fp8_gemm_v2(a, False, b, False, None, out_dtype)
        assert_near(actual, a.cpu().double() @ b.cpu().double(), out_dtype)


def test_accumulator_is_added_only_on_request_and_not_modified():
    a, b, d = fp8_tensor(4, 4).to("hpu"), fp8_tensor(4, 4, seed=1).to("hpu"), torch.ones(4, 4)
    device_d = d.to("hpu")
    plain = hpu_ops.fp8_gemm_v2(a, False, b, False, None, torch.float32)
    ignored = hpu_ops.fp8_gemm_v2(a, False, b, False, device_d, torch.float32)
    added = hpu_ops.fp8_gemm_v2(a, False, b, False, device_d, torch.float32, accumulate=True)
    assert torch.equal(ignored.cpu(), plain.cpu())
    assert torch.equal(added.cpu(), plain.cpu() + 1)
    assert torch.equal(device_d.cpu(), d)
    hpu_ops.fp8_gemm(a, False, b, False, device_d, torch.float32, None, None, None, True, device_d)
    assert torch.equal(device_d.cpu(), plain.cpu() + 1)  # D and out may be the same tensor


@pytest.mark.parametrize(
    ("scale", "shape"),
    [
        (torch.tensor([1.0, 0.5, 2.0]), None),
        (torch.tensor([1.0, 0.5, 2.0, 4.0]), [4, 1]),
        (torch.tensor([[1.0], [0.25], [4.0], [0.5]]), None),
    ],
    ids=["columns", "rows by shape", "rows"],
)
def test_scale_with_several_elements_applies_per_channel(scale, shape):
    a, b = fp8_tensor(2, 4, 6), fp8_tensor(6, 3, seed=1)
    factor = scale if shape is None else scale.reshape(shape)
    expected = a.double() @ b.double() * factor.double()
    arguments = a.to("hpu"), False, b.to("hpu"), False, None, torch.float32
    actual = hpu_ops.fp8_gemm_v2(*arguments, None, scale.to("hpu"), B_scale_shape=shape)
    assert_near(actual, expected, torch.float32)
    if scale.dim() == 1:
        listed = hpu_ops.fp8_gemm_v2(*arguments, [1.0], scale.tolist(), B_scale_shape=shape)
        assert_near(listed, expected, torch.float32)


@BOTH_OUTPUTS
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "blocks"),
    [((2, 3), 8, 6, (2, 3)), ((1,), 8, 4, (2, 1)), ((5,), 4, 6, (1, 2)), ((2,), 6, 3, (2, 3))],
    ids=str,
)
def test_linear_layer_supports_block_scales(rows, inner, columns, blocks, trans_b, out_dtype):
    made = torch.Generator().manual_seed(0)
    x = torch.randn(*rows, inner, generator=made).to(torch.bfloat16)
    if len(rows) == 1:
        x = x * torch.arange(1, rows[0] + 1).unsqueeze(-1)
    weight, of_b = fp8_tensor(inner, columns), torch.rand(blocks, generator=made) + 0.5
    block = inner // blocks[0]
    a, of_a = hpu_ops.cast_to_fp8_just_in_time(
        x.to("hpu"), [1, block], out_dtype=E4M3, scale_dtype=torch.bfloat16
    )
    actual = hpu_ops.fp8_gemm_v2(
        A=a,
        trans_A=False,
        B=(weight.t().contiguous() if trans_b else weight).to("hpu"),
        trans_B=trans_b,
        D=None,
        out_dtype=out_dtype,
        A_scale_inv=of_a,
        B_scale_inv=of_b.to("hpu"),
        bias=None,
        accumulate=False,
    )
    wide = a.cpu().double() * of_a.cpu().double().repeat_interleave(block, -1)
    factor = of_b.double().repeat_interleave(block, 0)
    factor = factor.repeat_interleave(columns // blocks[1], 1)
    assert_near(actual, wide @ (weight.double() * factor), out_dtype)


def test_blocks_that_do_not_divide_the_operand_are_rejected():
    a, b = fp8_tensor(2, 8).to("hpu"), fp8_tensor(8, 4).to("hpu")
    scales = torch.ones(2, 3, device="hpu"), torch.ones(3, 2, device="hpu")
    with pytest.raises(RuntimeError, match="does not divide an operand of"):
        run(hpu_ops.fp8_gemm_v2, a, False, b, False, None, torch.float32, *scales)


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [((6,), (6,)), ((2, 6), (6,)), ((6,), (6, 3)), ((2, 1, 4, 6), (3, 6, 5)), ((0, 6), (6, 2))],
    ids=str,
)
def test_shapes_broadcast_like_matmul(of_a, of_b):
    a, b = fp8_tensor(*of_a), fp8_tensor(*of_b, seed=1)
    actual = hpu_ops.fp8_gemm_v2(a.to("hpu"), False, b.to("hpu"), False, None, torch.bfloat16)
    assert_near(actual, torch.matmul(a.double(), b.double()), torch.bfloat16)


@pytest.mark.parametrize(
    ("a", "b", "keywords", "message"),
    [
        (fp8_tensor(4, 6), fp8_tensor(5, 3), {}, "inputs should be the same. Got 6 and 5"),
        (fp8_tensor(2, 4, 6), fp8_tensor(3, 6, 5), {}, "be equal to 1. Got 2 and 3"),
        (
            fp8_tensor(4, 6),
            fp8_tensor(6, 3),
            {"accumulate": True},
            "Accumulation tensor must be provided at index 4 for Fp8GemmV2, when accumulate is "
            "true",
        ),
        (fp8_tensor(4, 6, fp8=E5M2), fp8_tensor(6, 3), {}, "got Float8_e5m2 and Float8_e4m3fn."),
        (torch.ones(4, 6), fp8_tensor(6, 3), {}, "dtype, but got Float and Float8_e4m3fn."),
        (
            fp8_tensor(4, 6),
            fp8_tensor(6, 3),
            {"bias": torch.ones(2, 4, 3)},
            "must broadcast to the product of shape [4, 3], but result in [2, 4, 3].",
        ),
        (
            fp8_tensor(4, 6),
            fp8_tensor(6, 3),
            {"B_scale_inv": torch.ones(3), "B_scale_shape": [4, 1]},
            "Number of scale elements (3) is not equal to number of scale_shape elements (4).",
        ),
    ],
    ids=["common", "batch", "no D", "formats", "float32", "bias", "scale shape"],
)
def test_invalid_product_is_rejected_with_the_vendors_message(a, b, keywords, message):
    keywords = dict(zip(keywords, on_device(keywords.values()), strict=True))
    with rejects(message):
        run(
            hpu_ops.fp8_gemm_v2,
            *(a.to("hpu"), False, b.to("hpu"), False, None, torch.float32),
            **keywords,
        )


def test_product_is_float32_or_bfloat16():
    a = fp8_tensor(2, 2).to("hpu")
    with pytest.raises(RuntimeError, match="out_dtype must be float or bfloat16, but got Half"):
        run(hpu_ops.fp8_gemm_v2, a, False, a, False, None, torch.float16)
    out = torch.empty(3, 2, device="hpu")
    with pytest.raises(RuntimeError, match=r"out must have the product's shape \[2, 2\]"):
        run(hpu_ops.fp8_gemm, a, False, a, False, a, torch.float32, None, None, None, False, out)


@BOTH_OUTPUTS
def test_convolution_is_multiplied_by_both_scales(out_dtype):
    image, weight, bias = fp8_tensor(2, 4, 9, 8), fp8_tensor(6, 2, 3, 2, seed=1), torch.randn(6)
    expected = (
        torch.nn.functional.conv2d(
            image.double(), weight.double(), None, (2, 1), (1, 1), (1, 2), groups=2
        )
        * 0.5
        * 0.25
        + bias.double()[:, None, None]
    )
    arguments = (
        image.to("hpu"),
        weight.to("hpu"),
        bias.to("hpu"),
        [2, 1],
        [1],
        [1, 2],
        2,
        out_dtype,
    )
    scales = torch.tensor([0.5], device="hpu"), torch.tensor(0.25, device="hpu")
    assert_near(hpu_ops.conv2d_fp8(*arguments, *scales), expected, out_dtype)
    assert_near(hpu_ops.conv2d_fp8.scalar(*arguments, 0.5, 0.25), expected, out_dtype)


def test_convolution_is_bfloat16_by_default():
    image, weight = fp8_tensor(1, 2, 4, 4), fp8_tensor(3, 2, 2, 2, seed=1)
    expected = torch.nn.functional.conv2d(image.double(), weight.double())
    actual = hpu_ops.conv2d_fp8(image.to("hpu"), weight.to("hpu"))
    assert_near(actual, expected, torch.bfloat16)


FOUR = fp8_tensor(1, 2, 4, 4), fp8_tensor(3, 2, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((fp8_tensor(2, 4, 4), fp8_tensor(3, 2, 2, 2)), "Input and weight must be 4D tensors"),
        ((*FOUR, torch.ones(2)), "Bias must be 1D tensor with size equal to weight dim0"),
        ((*FOUR, None, [1], [0], [1], 1, None, torch.ones(2)), "Multi-element scale tensors are"),
    ],
    ids=["3D", "bias", "scales"],
)
def test_invalid_convolution_is_rejected_with_the_vendors_message(arguments, message):
    moved = on_device(arguments)
    with rejects(message):
        run(hpu_ops.conv2d_fp8, *moved)


@FORMATS
@pytest.mark.parametrize("dim", [None, 0, [-1], [0, 2]], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sum_in_float32_is_exact_and_in_fp8_equals_torch_sum(fp8, dim, keepdim):
    values = fp8_tensor(3, 4, 5, fp8=fp8)
    device = values.to("hpu")
    exact = hpu_ops.sum_fp8(device, dim, keepdim, torch.float32)
    expected = torch.sum(values.double(), dim, keepdim)
    assert (exact.dtype, exact.shape) == (torch.float32, expected.shape)
    assert torch.equal(exact.cpu().double(), expected)
    actual = hpu_ops.sum_fp8(device, dim, keepdim)
    expected_sum = torch.sum(device, dim, keepdim)
    assert actual.dtype == expected_sum.dtype == fp8
    assert torch.equal(actual.cpu().view(torch.uint8), expected_sum.cpu().view(torch.uint8))


def test_fp8_sum_saturates_like_torch_sum():
    values = torch.full((100,), 200.0).to(E4M3).to("hpu")
    assert hpu_ops.sum_fp8(values).float().item() == torch.sum(values).float().item() == 240.0
    with pytest.raises(RuntimeError, match="input must be of float8_e5m2 or float8_e4m3fn"):
        run(hpu_ops.sum_fp8, torch.ones(3, device="hpu"))


def softmax_reference(scores, heads=1.0, scale=1.0, add=None):
    raw = scores.double() * heads * scale + (0.0 if add is None else add.double())
    return torch.softmax(raw, -1)


def test_softmax_without_scales_is_bfloat16():
    scores = torch.randn(2, 3, 8).bfloat16()
    actual = hpu_ops.softmax_fp8(scores.to("hpu"), -1)
    assert_near(actual, softmax_reference(scores), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, E4M3], ids=str)
def test_softmax_with_scales_is_e4m3_in_every_overload(dtype):
    scores = torch.randn(2, 3, 4, 8).to(dtype)
    add = torch.randn(2, 1, 4, 8).bfloat16()
    result = softmax_reference(scores, 0.125, 2.0, add)
    expected = (result.bfloat16() * 16).to(E4M3)
    device = scores.to("hpu")
    scale, out = torch.tensor(2.0, device="hpu"), torch.tensor([16.0], device="hpu")
    heads = torch.tensor(0.125, device="hpu")
    for actual in (
        hpu_ops.softmax_fp8(device, 3, scale, out, heads, add.to("hpu")),
        hpu_ops.softmax_fp8.Scalar_scales(device, -1, 2.0, 16.0, heads, add.to("hpu")),
        hpu_ops.softmax_fp8.Scalar(device, -1, 2.0, 16.0, 0.125, add.to("hpu")),
    ):
        assert (actual.dtype, actual.shape) == (E4M3, scores.shape)
        # Float32 may round a tie to the other side: one E4M3 step, an eighth.
        torch.testing.assert_close(actual.cpu().float(), expected.float(), rtol=0.125, atol=2.0**-9)


def bfloat16_ones(*shape):
    return torch.ones(shape, dtype=torch.bfloat16)


ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(2, 2), -1), "Input tensor must be of torch.bfloat16 or torch.float8_e4m3fn"),
        ((bfloat16_ones(2, 2), -1, ONE), "Output and input scales must be both given or None"),
        ((fp8_tensor(2, 2), -1), "If Input is of torch.float8_e4m3fn dtype then input scale must"),
        (
            (bfloat16_ones(2, 2), -1, None, None, None, bfloat16_ones(2, 2)),
            "FusedAdd available only for Float8 output, but input scale is not given.",
        ),
        (
            (bfloat16_ones(2, 3, 2), -1, ONE, ONE, None, bfloat16_ones(2, 2)),
            "FusedAdd tensor must have the same rank as the input tensor",
        ),
        (
            (bfloat16_ones(2, 3, 2), -1, ONE, ONE, None, bfloat16_ones(1, 3, 2)),
            "FusedAdd tensor must have the same first and last dim as the input tensor",
        ),
        (
            (bfloat16_ones(2, 3, 2), -1, ONE, ONE, None, bfloat16_ones(2, 2, 2)),
            "FusedAdd tensor's dim other than first and last should be equal to 1 or the same as "
            "the input tensor",
        ),
        ((bfloat16_ones(2, 2), -1, ONE.double(), ONE), "Input scale must be of dtype: Float"),
        (
            (bfloat16_ones(2, 2), -1, ONE, ONE, None, torch.ones(2, 2)),
            "Input fused_add must be of dtype: BFloat16",
        ),
        ((bfloat16_ones(2, 2), 0), "last dimension of its input, but dim is 0 for 2 dimensions."),
    ],
    ids=[
        *("float32", "one scale", "fp8 without", "add without", "rank", "first", "middle"),
        *("scale dtype", "add dtype", "dim"),
    ],
)
def test_invalid_softmax_is_rejected_with_the_vendors_message(arguments, message):
    moved = on_device(arguments)
    with rejects(message):
        run(hpu_ops.softmax_fp8, *moved)


def everything(a, b, image, weight):
    product = hpu_ops.fp8_gemm_v2(a, False, b, True, None, torch.bfloat16, 0.5, 0.25)
    return (
        product,
        hpu_ops.conv2d_fp8(image, weight),
        hpu_ops.sum_fp8(a, [0], out_dtype=torch.float32),
        hpu_ops.softmax_fp8.Scalar_scales(product, -1, 1.0, 16.0),
    )


def operands(rows, seed=0):
    return (
        fp8_tensor(rows, 6, seed=seed).to("hpu"),
        fp8_tensor(5, 6, seed=seed + 1).to("hpu"),
        fp8_tensor(rows, 2, 5, 5, seed=seed + 2).to("hpu"),
        fp8_tensor(3, 2, 2, 2, seed=seed + 3).to("hpu"),
    )
