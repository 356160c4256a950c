"""Beams in a cache of keys and values, and the functions beside it."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays, run  # noqa: E402

hpu_ops = torch.ops.hpu
EAGER = pytest.mark.skipif(is_lazy(), reason="operators of eager mode")


def reordered(cache, start, end, beams):
    """The cache after each batch's beams continue those that are given."""
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
def test_beams_continue_others_in_the_columns_of_each_batch(dtype, shape):
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


def test_a_view_of_a_cache_is_reordered_in_place():
    cache = torch.randn(2, 4, 6, 3, 2)
    device = cache.to("hpu")
    run(hpu_ops.kv_reorder_, device.transpose(2, 3), *order())
    expected = reordered(cache.transpose(2, 3), START, END, BEAMS).transpose(2, 3)
    assert torch.equal(device.cpu(), expected)


@pytest.mark.parametrize(
    ("changed", "by", "said"),
    [
        (0, torch.zeros(2).long(), "Start tensor must be of type Int32"),
        (1, torch.zeros(2).long(), "End tensor must be of type Int32"),
        (2, torch.zeros(2).int(), "Beam_idx tensor must be of type UInt8"),
        (0, torch.zeros(2, 1).int(), "Start tensor must have dimensions 1"),
        (1, torch.zeros(2, 1).int(), "End tensor must have dimensions 1"),
        (2, torch.zeros(2, 1).byte(), "Beam_idx tensor must have dimensions 1"),
        (0, torch.zeros(3).int(), "an element for each of 2 batches, but one has 3."),
        (1, torch.tensor([3, 9]).int(), "Columns 2 to 9 are not all among the 6 of the cache."),
    ],
)
def test_what_reordering_does_not_take_is_refused_in_its_words(changed, by, said):
    given = order()
    given[changed] = by.to("hpu")
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.kv_reorder_, torch.zeros(2, 4, 1, 6, 2, device="hpu"), *given)
    assert said in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2], ids=str)
def test_the_first_quarter_of_a_batch_is_repeated(dtype):
    values = torch.arange(8 * 2).reshape(8, 1, 2, 1).to(dtype)
    expected = values.float()[:2].repeat_interleave(4, 0)
    device = values.to("hpu")
    if not is_lazy():
        assert torch.equal(hpu_ops.in_place_interleave(device).float().cpu(), expected)
    hpu_ops.in_place_interleave_(device)
    assert torch.equal(device.float().cpu(), expected)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((4, 2), "Input has to be a 4D tensor."),
        ((6, 1, 1, 1), "Batch size has to be a multiple of 4."),
    ],
)
def test_what_interleaving_does_not_take_is_refused_in_its_words(shape, said):
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.in_place_interleave_, torch.zeros(shape, device="hpu"))
    assert said in str(refused.value)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True)])
def test_a_masked_product_is_the_sum_of_two(trans_a, trans_b):
    shapes = [(2, 3, 4, 5), (2, 3, 5, 6), (2, 1, 4, 5), (2, 1, 5, 6)]
    flags = (trans_a, trans_b, trans_a, trans_b)
    a, b, mask_a, mask_b = (torch.randn(shape) for shape in shapes)
    expected = a.double() @ b.double() + mask_a.double() @ mask_b.double()
    given = [
        (each.mT.contiguous() if flag else each).to("hpu")
        for each, flag in zip((a, b, mask_a, mask_b), flags, strict=True)
    ]
    found = hpu_ops.masked_batch_gemm(*given, trans_a, trans_b)
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="All inputs must be 4D, but got: a = 3D, b = 4D"):
        run(hpu_ops.masked_batch_gemm, given[0][0], *given[1:], trans_a, trans_b)


@pytest.mark.parametrize(
    ("of_masks", "product"),
    [
        (((3, 1, 4, 5), (3, 1, 5, 6)), (3, 1, 4, 6)),
        (((2, 2, 4, 5), (1, 1, 5, 6)), (2, 2, 4, 6)),
        (((2, 1, 1, 5), (2, 1, 5, 6)), (2, 1, 1, 6)),
        (((2, 1, 4, 7), (2, 1, 7, 1)), (2, 1, 4, 1)),
    ],
)
def test_masks_of_another_product_are_refused(of_masks, product):
    given = [torch.ones(shape, device="hpu") for shape in ((2, 3, 4, 5), (2, 3, 5, 6), *of_masks)]
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.masked_batch_gemm, *given, False, False)
    said = (
        "MaskedBatchGemm masks must have a product of shape [2, 3, 4, 6], as a and b have, "
        f"where only batch dimensions may be 1, but theirs has shape {list(product)}."
    )
    assert said in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["exp", "sqrt", "rsqrt"])
def test_what_the_vendor_calls_fast_is_exact_here(name, dtype):
    x = torch.rand(16).add(0.1).to(dtype)
    found = getattr(hpu_ops, f"{name}_fast_math")(x.to("hpu"))
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu(), getattr(torch, name)(x.double()).to(dtype))


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
def test_a_compiled_reordering_is_that_of_eager_mode():
    assert_compiles(everything, operands(6), operands(7))


@EAGER
def test_a_compiled_function_writes_the_cache_that_it_is_given():
    cache = torch.randn(2, 4, 3, 6, 2)

    def reorder(given, start, end, beams):
        return hpu_ops.kv_reorder_(given, start, end, beams) + 1

    device = cache.to("hpu")
    compiled = torch.compile(reorder, backend="hpu_backend", fullgraph=True)
    found = compiled(device, *order())
    expected = reordered(cache, START, END, BEAMS)
    assert torch.equal(device.cpu(), expected)
    assert torch.equal(found.cpu(), expected + 1)


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_reorders_what_lies_in_the_captured_cache():
    assert_replays(everything, operands(6), operands(6, seed=1))
