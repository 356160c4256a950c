"""Casts to and from the 8-bit floating-point types, against all values that those types have."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import core as htcore  # noqa: E402
from habana_frameworks.torch import hpu  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402

hpu_ops = torch.ops.hpu
E5M2, E4M3 = torch.float8_e5m2, torch.float8_e4m3fn
LARGEST = {E5M2: 57344.0, E4M3: 240.0}  # of the second generation
FORMATS = pytest.mark.parametrize("fp8", [E5M2, E4M3], ids=["E5M2", "E4M3"])


def run(operator, *arguments, **keywords):
    """Call an operator and let it run, in lazy mode too."""
    results = operator(*arguments, **keywords)
    htcore.mark_step()
    return results


def values_of(fp8):
    """All finite values of a format that the generation has, in float64, ascending."""
    every = torch.arange(256, dtype=torch.uint8).view(fp8).double()
    return torch.unique(every[every.abs() <= LARGEST[fp8]])


def neighbours(numbers, fp8):
    """The values of a format next below or equal to, and next above or equal to, each number."""
    values = values_of(fp8)
    clamped = numbers.double().clamp(-LARGEST[fp8], LARGEST[fp8])
    below = values[torch.searchsorted(values, clamped, right=True) - 1]
    above = values[torch.searchsorted(values, clamped)]
    return below, above


def nearest(numbers, fp8):
    """Each number rounded to the nearest value, ties to the even mantissa, and saturated."""
    below, above = neighbours(numbers, fp8)
    clamped = numbers.double().clamp(-LARGEST[fp8], LARGEST[fp8])
    to_below, to_above = clamped - below, above - clamped
    even = (below.to(fp8).view(torch.uint8) & 1) == 0
    down = (to_below < to_above) | ((to_below == to_above) & even)
    return torch.where(down, below, above)


def samples():
    """Numbers over the whole range of both formats, with all values, midpoints and zeros."""
    torch.manual_seed(0)
    spread = torch.randn(4096) * torch.exp2(torch.randint(-20, 18, (4096,)).float())
    values = torch.cat([values_of(E5M2), values_of(E4M3)])
    midpoints = (values[1:] + values[:-1]) / 2
    return torch.cat([spread, values.float(), midpoints.float(), torch.tensor([0.0, -0.0])])


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_cast_rounds_to_the_nearest_and_saturates(fp8, dtype):
    numbers = samples().to(dtype)
    out, amax = hpu_ops.cast_to_fp8_v2(numbers.to("hpu"), dtype=fp8)
    assert (out.dtype, out.device.type, out.shape) == (fp8, "hpu", numbers.shape)
    assert torch.equal(out.cpu().double(), nearest(numbers, fp8))
    assert (amax.dtype, amax.shape) == (torch.float32, (0,))


@FORMATS
@pytest.mark.parametrize("scale", [None, 1.0, 0.3, 2.0**-80, 2.0**100], ids=str)
def test_every_bfloat16_is_cast(fp8, scale):
    every = torch.arange(65536).to(torch.uint16).view(torch.bfloat16)
    factor = None if scale is None else torch.tensor(scale)
    scaled = every if factor is None else every * factor.to(torch.bfloat16)
    for whole in (every, every[7:], every.reshape(256, 256).t(), every.reshape(256, 256)[:, 3:]):
        expected = scaled.as_strided(whole.shape, whole.stride(), whole.storage_offset())
        device = every.to("hpu").as_strided(whole.shape, whole.stride(), whole.storage_offset())
        out, _ = hpu_ops.cast_to_fp8_v2(
            device, None if scale is None else factor.to("hpu"), dtype=fp8
        )
        no_number = expected.isnan()
        assert torch.equal(out.cpu().float().isnan(), no_number)
        found = out.cpu().double()[~no_number]
        assert torch.equal(found, nearest(expected[~no_number], fp8))


@FORMATS
def test_what_is_no_number_stays_and_the_infinite_saturates(fp8):
    numbers = torch.tensor([torch.inf, -torch.inf, torch.nan], device="hpu")
    out, _ = hpu_ops.cast_to_fp8_v2(numbers, dtype=fp8)
    limit = LARGEST[fp8]
    assert out.float().cpu()[:2].tolist() == [limit, -limit]
    assert out.float().cpu()[2].isnan()


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_product_with_the_scale_is_formed_in_the_inputs_type(fp8, dtype):
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
        (torch.tensor([3.0]), [3, 1]),  # one element is no channel: its shape is not looked at
    ],
    ids=["last", "rows", "reshaped", "one"],
)
def test_a_scale_of_several_elements_is_one_for_each_channel(scale, shape):
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


def test_a_scale_shape_of_other_elements_is_refused():
    numbers = torch.ones(2, 3, device="hpu")
    with pytest.raises(
        RuntimeError, match=r"scale elements \(3\) is not equal .* scale_shape elements \(4\)"
    ):
        run(hpu_ops.cast_to_fp8_v2, numbers, [1.0, 2.0, 3.0], dtype=E4M3, scale_shape=[4, 1])


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_stochastic_rounding_chooses_a_neighbour_and_is_right_on_average(fp8, dtype):
    number, draws = 1.1 if fp8 is E4M3 else 1.06, 20_000
    for scale in (1.0, 2.0**-16, 2.0**-18):  # a normal value, a subnormal, less than any
        value = torch.tensor(number * scale).to(dtype)
        many = value.expand(draws).to("hpu")
        out, _ = hpu_ops.cast_to_fp8_v2(many, None, True, False, fp8)
        below, above = (each.item() for each in neighbours(value.reshape(1), fp8))
        found = out.cpu().double()
        assert set(found.tolist()) <= {below, above}
        spread = (above - below) / 2 / draws**0.5
        assert abs(found.mean().item() - value.double().item()) <= 5 * spread
    numbers = values_of(fp8).to(dtype)  # what needs no rounding is not rounded
    out, _ = hpu_ops.cast_to_fp8_v2(numbers.to("hpu"), None, True, False, fp8)
    assert torch.equal(out.cpu().double(), numbers.double())


def test_stochastic_rounding_follows_the_devices_seed():
    numbers = torch.randn(1000).to("hpu")

    def draw(seed):
        hpu.manual_seed(seed)
        return hpu_ops.cast_to_fp8_v2(numbers, None, True, False, E5M2)[0].cpu().view(torch.uint8)

    before = torch.get_rng_state()
    first = draw(1)
    assert torch.equal(draw(1), first)
    assert not torch.equal(draw(2), first)
    assert torch.equal(torch.get_rng_state(), before)  # the CPU's generator drew nothing


def test_an_fp8_input_is_handed_through():
    numbers = torch.randn(5).to("hpu").to(E4M3)
    out, amax = hpu_ops.cast_to_fp8_v2(numbers, 2.0, dtype=E4M3)
    assert torch.equal(out.cpu().view(torch.uint8), numbers.cpu().view(torch.uint8))
    assert amax.numel() == 0
    assert out.data_ptr() != numbers.data_ptr()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((E4M3, 1.0, False, True, E4M3), "CastToFp8V2 must have no amax for float8."),
        (
            (E5M2, 1.0, False, False, E4M3),
            "CastToFp8V2 input and output must have the same dtype for float8, but are "
            "Float8_e5m2 and Float8_e4m3fn",
        ),
        (
            (torch.float16, 1.0, False, False, E4M3),
            "CastToFp8V2 input dtype must be one of [float, bfloat16, float8_e5m2, float8_e4m3fn].",
        ),
        (
            (torch.float32, 1.0),
            "hpu::cast_to_fp8_v2 needs its argument 'dtype', but it is None.",
        ),
        (
            (torch.float32, 1.0, False, False, torch.int8),
            "CastToFp8V2 dtype must be one of [float8_e5m2, float8_e4m3fn], but is Char.",
        ),
    ],
    ids=["amax", "other format", "half", "no dtype", "int8"],
)
def test_what_a_cast_does_not_take_is_refused_in_its_words(arguments, said):
    given, *rest = arguments
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.cast_to_fp8_v2, torch.ones(2, device="hpu").to(given), *rest)
    assert said in str(refused.value)


def test_the_older_cast_writes_into_its_outputs():
    numbers = torch.randn(3, 4) * 100
    for out_dtype in (E5M2, E4M3):
        base = torch.zeros(4, 4, dtype=out_dtype, device="hpu")
        out, amax = base[1:], torch.zeros((), device="hpu")
        scale = torch.tensor(0.5, device="hpu")
        given = hpu_ops.cast_to_fp8(numbers.to("hpu"), scale, False, out, amax)
        assert torch.equal(base.cpu()[1:].double(), nearest(numbers * 0.5, out_dtype))
        assert torch.equal(base.cpu()[0].double(), torch.zeros(4).double())
        assert amax.item() == numbers.abs().max().item()
        assert [each.data_ptr() for each in given] == [out.data_ptr(), amax.data_ptr()]
    with pytest.raises(RuntimeError, match="Input and output must have the same shape"):
        run(hpu_ops.cast_to_fp8, torch.ones(3, device="hpu"), None, False, out, amax)
    numbers = torch.ones(3, 4, device="hpu").int()
    with pytest.raises(RuntimeError, match="CastToFp8 input must be of float or bfloat16 dtype"):
        run(hpu_ops.cast_to_fp8, numbers, None, False, out, amax)


def test_the_hybrid_cast_gives_both_formats_with_a_scale_each():
    numbers = torch.randn(64) * 100
    five, four, amax = hpu_ops.cast_to_fp8_hybrid(
        numbers.to("hpu"),
        torch.tensor(4.0, device="hpu"),
        torch.tensor(0.25, device="hpu"),
        stochastic_rounding=True,
        is_amax=True,
    )
    below, above = neighbours(numbers * 4, E5M2)
    assert ((five.cpu().double() == below) | (five.cpu().double() == above)).all()
    assert torch.equal(four.cpu().double(), nearest(numbers * 0.25, E4M3))  # never by chance
    assert amax.item() == numbers.abs().max().item()


@FORMATS
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_cast_back_multiplies_in_the_type_it_gives(fp8, out_dtype):
    numbers = values_of(fp8).to(fp8)
    scale = torch.tensor(0.3)
    expected = numbers.to(out_dtype) * scale.to(out_dtype)
    device = numbers.to("hpu")
    for given in (scale.to("hpu"), 0.3, [0.3]):
        back = hpu_ops.cast_from_fp8(device, given, out_dtype)
        assert back.dtype == out_dtype
        assert torch.equal(back.cpu(), expected)
    assert torch.equal(hpu_ops.cast_from_fp8(device, None, out_dtype).cpu(), numbers.to(out_dtype))
    with pytest.raises(RuntimeError, match="output dtype must be equal to float or bfloat16"):
        run(hpu_ops.cast_from_fp8, device, None, torch.float16)


@FORMATS
def test_there_and_back_is_rounding_alone(fp8):
    numbers = torch.randn(256) * 7
    there, _ = hpu_ops.cast_to_fp8_v2(numbers.to("hpu"), 16.0, dtype=fp8)
    back = hpu_ops.cast_from_fp8(there, 1 / 16.0, torch.float32)
    assert torch.equal(back.cpu().double(), nearest(numbers * 16, fp8) / 16)


def test_tensors_on_the_cpu_have_no_kernel():
    with pytest.raises(NotImplementedError, match="CPU"):
        hpu_ops.cast_to_fp8_v2(torch.ones(2), dtype=E4M3)


def test_fake_tensors_know_what_a_cast_gives():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        numbers = torch.empty(3, 4, device="hpu")
        out, amax = hpu_ops.cast_to_fp8_v2(numbers, None, True, True, E5M2)
        back = hpu_ops.cast_from_fp8(out, 2.0, torch.bfloat16)
    assert (out.shape, out.dtype, out.device.type) == ((3, 4), E5M2, "hpu")
    assert (amax.shape, amax.dtype) == ((), torch.float32)
    assert (back.shape, back.dtype) == ((3, 4), torch.bfloat16)


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_function_casts_as_eager_mode_does():
    def there_and_back(numbers):
        cast, amax = hpu_ops.cast_to_fp8_v2(numbers, 2.0, False, True, E4M3)
        return hpu_ops.cast_from_fp8(cast, 0.5, torch.bfloat16), amax

    compiled = torch.compile(there_and_back, backend="hpu_backend", fullgraph=True)
    for shape in ((3, 4), (5, 4)):
        numbers = torch.randn(shape, device="hpu") * 50
        for found, expected in zip(compiled(numbers), there_and_back(numbers), strict=True):
            assert torch.equal(found.cpu(), expected.cpu())


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_casts_what_lies_in_the_captured_input():
    numbers = torch.randn(8, device="hpu")
    graph = hpu.HPUGraph()
    stream = hpu.Stream()
    with hpu.stream(stream):
        graph.capture_begin()
        cast, amax = hpu_ops.cast_to_fp8_v2(numbers, 2.0, False, True, E4M3)
        graph.capture_end()
    for _ in range(2):
        fresh = torch.randn(8) * 30
        numbers.copy_(fresh)
        graph.replay()
        assert torch.equal(cast.cpu().double(), nearest(fresh * 2, E4M3))
        assert amax.item() == fresh.abs().max().item()


@pytest.mark.parametrize("shape", [(3, 1), (2, 1, 1), (3, 4)], ids=str)
def test_a_scale_that_would_make_the_result_larger_is_refused(shape):
    numbers, scale = torch.ones(1, 4, device="hpu"), torch.ones(shape, device="hpu")
    said = r"A scale must broadcast to the shape \[1, 4\] of the values, but has shape"
    with pytest.raises(RuntimeError, match=said):
        run(torch.ops.hpu.cast_to_fp8_v2, numbers, scale, False, False, torch.float8_e4m3fn)
    eight = numbers.to(torch.float8_e4m3fn)
    with pytest.raises(RuntimeError, match=said):
        run(torch.ops.hpu.cast_from_fp8, eight, scale, torch.float32)
