"""Test beam reordering in a KV cache, interleaving, masked products and fast math functions."""

import pytest
import torch
from habana_frameworks.torch.utils.internal import is_lazy
from in_modes import run
from operator_tensors import EAGER, rejects

hpu_ops = torch.ops.hpu


def reordered(cache, start, end, beams):
    """Return the cache after each beam continues from the beam that is assigned to it."""
    result = cache.clone()
    for batch, (first, last, old) in enumerate(zip(start, end, beams, strict=True)):
        for new, continued in enumerate(old):
            result[batch, new, ..., first:last, :] = cache[batch, continued, ..., first:last, :]
    return result


def packed(beams):
    return torch.tensor([64 * a + 16 * b + 4 * c + d for a, b, c, d in beams], dtype=torch.uint8)


START, END, BEAMS = [0, 2], [3, 5], [(3, 0, 0, 1), (1, 1, 2, 3)]


def order(device="hpu"):
    values = torch.tensor(START).int(), torch.tensor(END).int(), packed(BEAMS)
    return [each.to(device) for each in values]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.float8_e4m3fn], ids=str
)
@pytest.mark.parametrize("shape", [(2, 4, 3, 6, 2), (2, 4, 6, 2)], ids=str)
def test_beams_are_reordered_in_the_columns_of_each_batch(dtype, shape):
    cache = torch.arange(torch.Size(shape).numel()).remainder(16).reshape(shape).to(dtype)
    device = cache.to("hpu")
    expected = reordered(cache.float(), START, END, BEAMS)
    if not is_lazy():
        fresh = hpu_ops.kv_reorder(device, *order())
        assert torch.equal(fresh.cpu().float(), expected)
        assert torch.equal(device.cpu().float(), cache.float())
    returned = hpu_ops.kv_reorder_(device, *order())
    assert returned.data_ptr() == device.data_ptr()
    assert torch.equal(device.cpu().float(), expected)


def test_view_of_a_cache_is_reordered_in_place():
    cache = torch.randn(2, 4, 6, 3, 2)
    device = cache.to("hpu")
    run(hpu_ops.kv_reorder_, device.transpose(2, 3), *order())
    expected = reordered(cache.transpose(2, 3), START, END, BEAMS).transpose(2, 3)
    assert torch.equal(device.cpu(), expected)


@pytest.mark.parametrize(
    ("changed", "by", "message"),
    [
        (0, torch.zeros(2).long(), "Start tensor must be of type Int32"),
        (1, torch.zeros(2).long(), "End tensor must be of type Int32"),
        (2, torch.zeros(2).int(), "Beam_idx tensor must be of type UInt8"),
        (0, torch.zeros(2, 1).int(), "Start tensor must have dimensions 1"),
        (1, torch.zeros(2, 1).int(), "End tensor must have dimensions 1"),
        (2, torch.zeros(2, 1).byte(), "Beam_idx tensor must have dimensions 1"),
        (0, torch.zeros(3).int(), "one element for each of 2 batch entries, but got 3."),
        (1, torch.tensor([3, 9]).int(), "2 to 9 are outside the cache, which has 6 positions."),
    ],
)
def test_invalid_reordering_is_rejected_with_the_vendors_message(changed, by, message):
    arguments = order()
    arguments[changed] = by.to("hpu")
    with rejects(message):
        run(hpu_ops.kv_reorder_, torch.zeros(2, 4, 1, 6, 2, device="hpu"), *arguments)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2], ids=str)
def test_interleaving_repeats_the_first_quarter_of_a_batch(dtype):
    values = torch.arange(8 * 2).reshape(8, 1, 2, 1).to(dtype)
    expected = values.float()[:2].repeat_interleave(4, 0)
    device = values.to("hpu")
    if not is_lazy():
        assert torch.equal(hpu_ops.in_place_interleave(device).float().cpu(), expected)
    hpu_ops.in_place_interleave_(device)
    assert torch.equal(device.float().cpu(), expected)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 2), "Input has to be a 4D tensor."),
        ((6, 1, 1, 1), "Batch size has to be a multiple of 4."),
    ],
)
def test_invalid_interleaving_is_rejected_with_the_vendors_message(shape, message):
    with rejects(message):
        run(hpu_ops.in_place_interleave_, torch.zeros(shape, device="hpu"))


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True)])
def test_masked_product_is_the_sum_of_two_products(trans_a, trans_b):
    shapes = [(2, 3, 4, 5), (2, 3, 5, 6), (2, 1, 4, 5), (2, 1, 5, 6)]
    flags = (trans_a, trans_b, trans_a, trans_b)
    a, b, mask_a, mask_b = (torch.randn(shape) for shape in shapes)
    expected = a.double() @ b.double() + mask_a.double() @ mask_b.double()
    arguments = [
        (each.mT.contiguous() if flag else each).to("hpu")
        for each, flag in zip((a, b, mask_a, mask_b), flags, strict=True)
    ]
    actual = hpu_ops.masked_batch_gemm(*arguments, trans_a, trans_b)
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="All inputs must be 4D, but got: a = 3D, b = 4D"):
        run(hpu_ops.masked_batch_gemm, arguments[0][0], *arguments[1:], trans_a, trans_b)


@pytest.mark.parametrize(
    ("of_masks", "product"),
    [
        (((3, 1, 4, 5), (3, 1, 5, 6)), (3, 1, 4, 6)),
        (((2, 2, 4, 5), (1, 1, 5, 6)), (2, 2, 4, 6)),
        (((2, 1, 1, 5), (2, 1, 5, 6)), (2, 1, 1, 6)),
        (((2, 1, 4, 7), (2, 1, 7, 1)), (2, 1, 4, 1)),
    ],
)
def test_masks_with_an_incompatible_product_are_rejected(of_masks, product):
    arguments = [
        torch.ones(shape, device="hpu") for shape in ((2, 3, 4, 5), (2, 3, 5, 6), *of_masks)
    ]
    with pytest.raises(RuntimeError) as error:
        run(hpu_ops.masked_batch_gemm, *arguments, False, False)
    message = (
        "The product of the MaskedBatchGemm masks must have shape [2, 3, 4, 6] like that of a and "
        f"b, except for batch dimensions of 1, but got shape {list(product)}."
    )
    assert message in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["exp", "sqrt", "rsqrt"])
def test_fast_math_functions_are_exact(name, dtype):
    x = torch.rand(16).add(0.1).to(dtype)
    actual = getattr(hpu_ops, f"{name}_fast_math")(x.to("hpu"))
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.cpu(), getattr(torch, name)(x.double()).to(dtype))


def everything(cache, start, end, beams):
    fresh = cache.clone()
    hpu_ops.kv_reorder_(fresh, start, end, beams)
    repeated = cache.flatten(0, 1).clone()
    hpu_ops.in_place_interleave_(repeated)
    return fresh, repeated, hpu_ops.exp_fast_math(cache)


def operands(length, seed=0):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 4, 3, length, 2, generator=made).to("hpu"), *order()]


@EAGER
def test_compiled_function_reorders_its_cache_in_place():
    cache = torch.randn(2, 4, 3, 6, 2)

    def reorder(keys, start, end, beams):
        return hpu_ops.kv_reorder_(keys, start, end, beams) + 1

    device = cache.to("hpu")
    compiled = torch.compile(reorder, backend="hpu_backend", fullgraph=True)
    actual = compiled(device, *order())
    expected = reordered(cache, START, END, BEAMS)
    assert torch.equal(device.cpu(), expected)
    assert torch.equal(actual.cpu(), expected + 1)
