"""Test operations that a card supports, but that CPU kernels reject or compute incorrectly."""

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.utils.internal import is_lazy
from in_modes import assert_replays, run
from operator_tensors import EAGER, FORMATS, LAZY, on_device


@FORMATS
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.min(),
        lambda x: x.max(1)[0],
        lambda x: x.amax(1),
        lambda x: x.amin(1),
        lambda x: x.clamp(-2, 2),
        lambda x: x + x,
        lambda x: x * x,
        lambda x: torch.nn.functional.pad(x, (1, 2)),
        lambda x: x[x.new_tensor([1], dtype=torch.long)],
        lambda x: x.index_select(1, x.new_tensor([2, 0], dtype=torch.long)),
        lambda x: x.index_fill(1, x.new_tensor([0], dtype=torch.long), 1.0),
        lambda x: x > 0,
        lambda x: x == x.flip(0),
    ],
    ids=[
        *("min", "max", "amax", "amin", "clamp", "add", "mul", "pad", "index", "index_select"),
        *("index_fill", "greater", "equal"),
    ],
)
def test_ordinary_operators_support_fp8(fp8, operation):
    numbers = torch.tensor([[1.0, -2.0, 3.5], [0.0, 5.0, -6.0]])
    actual, expected = operation(numbers.to(fp8).to("hpu")), operation(numbers)
    expected = expected if expected.dtype == torch.bool else expected.to(fp8)
    assert actual.dtype == expected.dtype
    assert torch.equal(actual.cpu().float(), expected.float())


def test_take_accepts_int32_indices():
    numbers, index = torch.randn(3, 4), torch.tensor([[0, -1], [5, 7]], dtype=torch.int32)
    actual = torch.take(numbers.to("hpu"), index.to("hpu"))
    assert torch.equal(actual.cpu(), torch.take(numbers, index.long()))
    with pytest.raises(RuntimeError, match="Expected a long tensor for index, but got Short"):
        run(torch.take, numbers.to("hpu"), index.short().to("hpu"))


DRAWS = {
    "randint": lambda: torch.randint(0, 2, (64, 64), dtype=torch.bool, device="hpu"),
    "randint_like": lambda: torch.randint_like(
        torch.empty(64, 64, device="hpu"), 2, dtype=torch.bool
    ),
    "random_": lambda: torch.empty(64, 64, dtype=torch.bool, device="hpu").random_(),
    "random_ between": lambda: torch.empty(64, 64, dtype=torch.bool, device="hpu").random_(0, 2),
    "bernoulli_": lambda: torch.empty(64, 64, dtype=torch.bool, device="hpu").bernoulli_(0.5),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("compiled", [False, True])
def test_random_bools_have_both_values_and_follow_the_seed(draw, compiled):
    if compiled and is_lazy():
        pytest.skip("lazy mode has no compile backend")
    draw = torch.compile(draw, backend="hpu_backend") if compiled else draw
    torch.manual_seed(0)
    actual = draw()
    assert (actual.dtype, actual.shape, actual.device.type) == (torch.bool, (64, 64), "hpu")
    assert 1600 < actual.sum().item() < 2500
    for rounding in (torch.ceil, torch.floor, torch.round, torch.trunc):
        assert torch.equal(rounding(actual).cpu(), actual.cpu())
    torch.manual_seed(0)
    assert torch.equal(draw().cpu(), actual.cpu())


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "trunc"])
def test_rounding_keeps_bools(name):
    values = torch.tensor([[True, False], [False, True]])
    ours = values.to("hpu")
    copy = getattr(torch, name)(ours)
    out = torch.empty(0, dtype=torch.bool, device="hpu")
    assert getattr(torch, name)(ours, out=out) is out
    assert getattr(ours, f"{name}_")() is ours
    ours.fill_(True)
    assert copy.tolist() == out.tolist() == values.tolist()
    numbers = torch.tensor([-1.5, 0.5, 2.5])
    assert torch.equal(getattr(torch, name)(numbers.to("hpu")).cpu(), getattr(torch, name)(numbers))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_add_relu_supports_floating_point_types(dtype):
    left, right = torch.randn(2, 3).to(dtype), torch.randn(3).to(dtype)
    expected = torch.relu(torch.add(left, right, alpha=2))
    ours, theirs = left.to("hpu"), right.to("hpu")
    out = torch.empty(0, dtype=dtype, device="hpu")
    assert torch.equal(torch._add_relu(ours, theirs, alpha=2).cpu(), expected)
    assert torch.equal(torch._add_relu(ours, theirs, alpha=2, out=out).cpu(), expected)
    assert torch.equal(torch._add_relu_(ours, theirs, alpha=2).cpu(), expected)
    assert torch.equal(ours.cpu(), expected)
    assert torch.equal(torch._add_relu(ours, 1.5).cpu(), torch.relu(expected + 1.5))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_lerp_of_integers_is_an_integer(dtype):
    start, end = torch.tensor([1, 2, 3], dtype=dtype), torch.tensor([5, 9, 4], dtype=dtype)
    weight = torch.tensor([0, 1, 2], dtype=dtype)
    device = on_device((start, end, weight))
    assert torch.lerp(*device).cpu().tolist() == [1, 9, 5]
    assert torch.lerp(device[0], device[1], 2).cpu().tolist() == [9, 16, 5]
    assert device[0].lerp_(device[1], device[2]).cpu().tolist() == [1, 9, 5]
    assert device[0].dtype == dtype
    with pytest.raises(RuntimeError, match="not implemented for"):
        run(torch.lerp, device[0], device[1], 0.5)


LIMITS = {
    torch.float32: 2**24,
    torch.float64: 2**24,
    torch.float16: 2**11,
    torch.bfloat16: 2**8,
    torch.int8: 2**7 - 1,
    torch.uint8: 2**8 - 1,
    torch.int16: 2**15 - 1,
    torch.int32: 2**31 - 1,
    torch.bool: 1,
}


@pytest.mark.parametrize(("dtype", "most"), LIMITS.items(), ids=str)
def test_random_covers_the_integers_that_the_dtype_represents_exactly(dtype, most):
    drawn = torch.empty(4000, dtype=dtype, device="hpu").random_().cpu().double()
    assert (drawn >= 0).all()
    assert 0.99 * most <= drawn.max().item() <= most
    assert (drawn % 1 == 0).all()


def test_random_rejects_complex_numbers_with_the_vendors_message():
    with pytest.raises(RuntimeError, match="Got unsupported type for random uniform: ComplexFloat"):
        run(torch.empty(3, dtype=torch.complex64, device="hpu").random_)


def test_uniform_integers_include_both_bounds():
    for dtype, low, high in ((torch.int32, -3.7, 2.9), (torch.int8, 0, 4), (torch.bool, 0, 1)):
        drawn = torch.empty(500, dtype=dtype, device="hpu").uniform_(low, high)
        assert sorted({int(each) for each in drawn.cpu()}) == list(range(int(low), int(high) + 1))
    numbers = torch.empty(500, device="hpu").uniform_(2, 3).cpu()
    assert ((numbers >= 2) & (numbers < 3)).all()
    assert not torch.equal(numbers, numbers.round())


def test_masked_scale_divides_by_one_minus_the_inverse_scale():
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8, device="hpu")
    for dtype in (torch.float32, torch.int32):
        numbers = torch.tensor([3, 4, 6], dtype=dtype, device="hpu")
        actual = torch._masked_scale(numbers, mask, 4.0)
        assert (actual.dtype, actual.tolist()) == (dtype, [4, 0, 8])


def test_resize_output_keeps_the_values():
    out = torch.arange(4.0, device="hpu")
    assert torch._resize_output_(out, [2, 3], torch.device("hpu", 0)) is out
    assert (out.shape, out.flatten()[:4].tolist()) == ((2, 3), [0.0, 1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="The output is on hpu:0, but must be on cpu"):
        torch._resize_output_(out, [2], torch.device("cpu"))


def test_bool_keeps_its_raw_byte_in_copies():
    raw = torch.tensor([[0, 1, 2], [255, 0, 7]], dtype=torch.uint8)
    bools = raw.view(torch.bool)
    there = bools.to("hpu")
    assert torch.equal(there.view(torch.uint8).cpu(), raw)
    column = torch.zeros(2, 3, dtype=torch.bool, device="hpu")
    column[:, 1:].copy_(bools[:, 1:])
    htcore.mark_step()
    assert torch.equal(column.view(torch.uint8).cpu()[:, 1:], raw[:, 1:])
    assert torch.equal(there.cpu().view(torch.uint8), raw)


@EAGER
def test_compiled_function_reads_the_raw_byte_of_a_bool():
    compiled = torch.compile(lambda x: x.view(torch.uint8) + 1, backend="hpu_backend")
    raw = torch.tensor([0, 1, 2, 7], dtype=torch.uint8)
    assert compiled(raw.view(torch.bool).to("hpu")).tolist() == [1, 2, 3, 8]


@pytest.mark.parametrize(
    "draw",
    [
        lambda x, g: x.uniform_(-1, 1, generator=g),
        lambda x, g: x.normal_(generator=g),
        lambda x, g: x.bernoulli_(0.5, generator=g),
        lambda x, g: x.random_(generator=g),
        lambda x, g: torch.randn(x.shape, generator=g, device="hpu"),
    ],
    ids=["uniform", "normal", "bernoulli", "random", "randn"],
)
def test_cpu_generator_seeds_device_numbers(draw):
    def twice(seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.zeros(64, device="hpu")
        drawn = draw(x, generator).cpu(), draw(x, generator).cpu()
        return drawn, generator.get_state()

    device_state = torch.hpu.get_rng_state()
    (first, second), state = twice(1)
    (again, again_second), same_state = twice(1)
    other, _ = twice(2)
    assert torch.equal(first, again)
    assert torch.equal(second, again_second)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other[0])
    assert torch.equal(state, same_state)
    assert torch.equal(torch.hpu.get_rng_state(), device_state)
    drawn_by_hand = torch.Generator().manual_seed(1)  # one number per call
    torch.empty(2, dtype=torch.int32).random_(generator=drawn_by_hand)
    assert torch.equal(drawn_by_hand.get_state(), state)


@pytest.mark.parametrize("median", [torch.median, torch.nanmedian])
def test_median_of_an_expanded_tensor_stays_within_its_memory(median):
    row = torch.arange(64.0)  # the CPU kernel reads beyond an expanded tensor
    for _ in range(20):
        expanded = row.to("hpu").expand(4, 64)
        values, places = median(expanded, 0)
        assert torch.equal(values.cpu(), row)
        assert ((places.cpu() >= 0) & (places.cpu() < 4)).all()
        out = torch.empty(0, device="hpu"), torch.empty(0, dtype=torch.long, device="hpu")
        median(expanded, 0, out=out)
        assert torch.equal(out[0].cpu(), row)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 3), (5, 1, 7), (10, 0, 0), (1, 2, 2)])
def test_histc_of_integers_keeps_their_type(dtype, bins, low, high):
    numbers = torch.tensor([[0, 1, 1, 3], [7, 3, 3, 9]])
    expected = torch.histc(numbers.double(), bins, low, high).to(dtype)
    ours = numbers.to(dtype).to("hpu")
    actual = torch.histc(ours, bins, low, high)
    assert actual.dtype == dtype
    assert torch.equal(actual.cpu(), expected)
    memory = torch.zeros(3 * bins, dtype=dtype).to("hpu")
    assert torch.histc(ours, bins, low, high, out=memory[bins : 2 * bins]).dtype == dtype
    assert torch.equal(memory.cpu(), torch.cat([expected * 0, expected, expected * 0]))


def test_histc_counts_a_bound_in_the_bin_that_it_starts():
    assert torch.histc(torch.tensor([49]).to("hpu"), 10, 0, 490).tolist() == [0, 1] + [0] * 8
    assert torch.histc(torch.tensor([5, 5]).to("hpu"), 2).tolist() == [0, 2]
    assert torch.histc(torch.tensor([], dtype=torch.int).to("hpu"), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("bins", "low", "reason"), [(0, 0, "bins must be > 0"), (2, 3, "max must")]
)
def test_histc_rejects_invalid_bins_for_every_type(bins, low, reason):
    for dtype in (torch.int32, torch.float32):
        with pytest.raises(RuntimeError, match=reason):
            run(torch.histc, torch.arange(3, dtype=dtype).to("hpu"), bins, low, 1)


@LAZY
def test_corrected_operators_can_be_replayed():
    def compute(numbers, index, integers):
        return torch.take(numbers, index), torch.lerp(integers, integers * 2, 3), numbers.view(-1)

    def sample(n):
        index = torch.tensor([n, 1], dtype=torch.int32)
        return torch.randn(4).to("hpu"), index.to("hpu"), torch.arange(n, n + 2).int().to("hpu")

    assert_replays(compute, sample(0), sample(3))


@pytest.mark.parametrize("requested", [(False, False), (True, False), (False, True), (True, True)])
def test_unique_returns_the_requested_outputs(requested):
    numbers = torch.tensor([3, 1, 3, 2, 1])
    expected = torch._unique2(numbers, True, *requested)
    actual = torch._unique2(numbers.to("hpu"), True, *requested)
    returned = (True, *(each or is_lazy() for each in requested))
    assert [each is not None for each in actual] == list(returned)
    for one, other, is_there in zip(actual, expected, returned, strict=True):
        if is_there:
            assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("requested", [(False, False), (True, False), (False, True), (True, True)])
def test_unique_fills_all_passed_outputs(requested):
    numbers = torch.tensor([3, 1, 3, 2, 1])
    options = (True, *requested)
    expected = torch._unique2(numbers, *options)
    outs = {f"out{i}": torch.zeros(2, dtype=torch.int64, device="hpu") for i in range(3)}
    actual = torch.ops.aten._unique2.out(numbers.to("hpu"), *options, **outs)
    for one, out, other in zip(actual, outs.values(), expected, strict=True):
        assert one is out
        assert torch.equal(out.cpu(), other)


@pytest.mark.parametrize(
    "gelu",
    [
        lambda x, form: torch.nn.functional.gelu(x, approximate=form),
        lambda x, form: torch.ops.aten.gelu_(x, approximate=form),
        lambda x, form: torch.ops.aten.gelu.out(x, approximate=form, out=torch.empty_like(x)),
        lambda x, form: torch.ops.aten.gelu_backward(x, x, approximate=form),
        lambda x, form: torch.ops.aten.gelu_backward.grad_input(
            x, x, approximate=form, grad_input=torch.empty_like(x)
        ),
    ],
    ids=["gelu", "gelu_", "gelu.out", "gelu_backward", "gelu_backward.grad_input"],
)
@pytest.mark.parametrize("form", ["asdf", "Tanh", ""])
def test_gelu_rejects_an_unknown_approximation(gelu, form):
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        run(gelu, torch.ones(3, device="hpu"), form)


GELU = """
import torch, habana_frameworks.torch
from torch.nn import functional as F

x = torch.linspace(-4, 4, 64)

def computed(device, approximate):
    there = x.clone().to(device).requires_grad_()
    result = F.gelu(there, approximate=approximate)
    (gradient,) = torch.autograd.grad(result.sum(), there)
    in_place = torch.ops.aten.gelu_(x.clone().to(device), approximate=approximate)
    out = torch.empty(64, device=device)
    torch.ops.aten.gelu.out(x.to(device), approximate=approximate, out=out)
    return torch.stack([each.detach().cpu() for each in (result, gradient, in_place, out)])

print([torch.equal(computed("hpu", "none"), computed("cpu", form)) for form in ("none", "tanh")],
      torch.equal(computed("hpu", "tanh"), computed("cpu", "tanh")))
"""


@pytest.mark.parametrize(
    ("lazy", "flags", "forms"),
    [
        ("0", {}, "[False, True] True\n"),
        ("1", {"PT_HPU_FORCE_TANH_FOR_GELU": "1"}, "[False, True] True\n"),
        ("0", {"PT_HPU_FORCE_TANH_FOR_GELU": "False"}, "[True, False] True\n"),
        ("1", {"PT_HPU_FORCE_TANH_FOR_GELU": "0"}, "[True, False] True\n"),
    ],
)
@pytest.mark.once
def test_gelu_uses_tanh_unless_the_flag_is_off(forked_script, lazy, flags, forms):
    assert forked_script(GELU, simulated=True, PT_HPU_LAZY_MODE=lazy, **flags) == forms
