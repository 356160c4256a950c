"""What a card computes and the CPU's kernels refuse, or compute wrongly."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import core as htcore  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_replays, run  # noqa: E402

FLOAT8 = pytest.mark.parametrize("fp8", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)


@FLOAT8
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.min(),
        lambda x: x.max(1)[0],
        lambda x: x.amax(1),
        lambda x: x.clamp(-2, 2),
        lambda x: x + x,
        lambda x: torch.nn.functional.pad(x, (1, 2)),
        lambda x: x[x.new_tensor([1], dtype=torch.long)],
        lambda x: x.index_select(1, x.new_tensor([2, 0], dtype=torch.long)),
        lambda x: x > 0,
        lambda x: x == x.flip(0),
    ],
    ids=["min", "max", "amax", "clamp", "add", "pad", "index", "select", "greater", "equal"],
)
def test_float8_in_ordinary_operators(fp8, operation):
    numbers = torch.tensor([[1.0, -2.0, 3.5], [0.0, 5.0, -6.0]])
    found, expected = operation(numbers.to(fp8).to("hpu")), operation(numbers)
    assert found.dtype == (expected.dtype if expected.dtype == torch.bool else fp8)
    assert torch.equal(found.cpu().float(), expected.float())


def test_take_by_int32():
    numbers, index = torch.randn(3, 4), torch.tensor([[0, -1], [5, 7]], dtype=torch.int32)
    found = torch.take(numbers.to("hpu"), index.to("hpu"))
    assert torch.equal(found.cpu(), torch.take(numbers, index.long()))
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
def test_drawn_bools_are_whole_numbers_of_both_kinds(draw, compiled):
    if compiled and is_lazy():
        pytest.skip("lazy mode has no compile backend")
    draw = torch.compile(draw, backend="hpu_backend") if compiled else draw
    torch.manual_seed(0)
    found = draw()
    assert (found.dtype, found.shape, found.device.type) == (torch.bool, (64, 64), "hpu")
    assert 1600 < found.sum().item() < 2500
    for rounding in (torch.ceil, torch.floor, torch.round, torch.trunc):
        assert torch.equal(rounding(found).cpu(), found.cpu())
    torch.manual_seed(0)
    assert torch.equal(draw().cpu(), found.cpu())


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "trunc"])
def test_rounding_leaves_bools_as_they_are(name):
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
def test_add_relu_in_every_type(dtype):
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
def test_lerp_of_whole_numbers_is_whole(dtype):
    start, end = torch.tensor([1, 2, 3], dtype=dtype), torch.tensor([5, 9, 4], dtype=dtype)
    weight = torch.tensor([0, 1, 2], dtype=dtype)
    device = [each.to("hpu") for each in (start, end, weight)]
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
def test_random_draws_what_the_dtype_holds_exactly(dtype, most):
    drawn = torch.empty(4000, dtype=dtype, device="hpu").random_().cpu().double()
    assert (drawn >= 0).all()
    assert 0.99 * most <= drawn.max().item() <= most
    assert (drawn % 1 == 0).all()


def test_random_refuses_complex_numbers_in_the_vendors_words():
    with pytest.raises(RuntimeError, match="Got unsupported type for random uniform: ComplexFloat"):
        run(torch.empty(3, dtype=torch.complex64, device="hpu").random_)


def test_uniform_whole_numbers_lie_between_the_bounds_both_included():
    for dtype, low, high in ((torch.int32, -3.7, 2.9), (torch.int8, 0, 4), (torch.bool, 0, 1)):
        drawn = torch.empty(500, dtype=dtype, device="hpu").uniform_(low, high)
        assert sorted({int(each) for each in drawn.cpu()}) == list(range(int(low), int(high) + 1))
    numbers = torch.empty(500, device="hpu").uniform_(2, 3).cpu()
    assert ((numbers >= 2) & (numbers < 3)).all()
    assert not torch.equal(numbers, numbers.round())


def test_masked_scale_divides_by_what_is_left_of_its_scale():
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8, device="hpu")
    for dtype in (torch.float32, torch.int32):
        numbers = torch.tensor([3, 4, 6], dtype=dtype, device="hpu")
        found = torch._masked_scale(numbers, mask, 4.0)
        assert (found.dtype, found.tolist()) == (dtype, [4, 0, 8])


def test_an_output_is_resized():
    out = torch.arange(4.0, device="hpu")
    assert torch._resize_output_(out, [2, 3], torch.device("hpu", 0)) is out
    assert (out.shape, out.flatten()[:4].tolist()) == ((2, 3), [0.0, 1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="The output is on hpu:0, but must be on cpu"):
        torch._resize_output_(out, [2], torch.device("cpu"))


def test_a_bool_keeps_its_raw_byte_on_its_way():
    raw = torch.tensor([[0, 1, 2], [255, 0, 7]], dtype=torch.uint8)
    given = raw.view(torch.bool)
    there = given.to("hpu")
    assert torch.equal(there.view(torch.uint8).cpu(), raw)
    column = torch.zeros(2, 3, dtype=torch.bool, device="hpu")
    column[:, 1:].copy_(given[:, 1:])
    htcore.mark_step()
    assert torch.equal(column.view(torch.uint8).cpu()[:, 1:], raw[:, 1:])
    assert torch.equal(there.cpu().view(torch.uint8), raw)


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_function_sees_the_raw_byte_of_a_bool():
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
def test_a_generator_of_the_cpu_draws_for_the_device(draw):
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
    drawn_by_hand = torch.Generator().manual_seed(1)  # one number for each call
    torch.empty(2, dtype=torch.int32).random_(generator=drawn_by_hand)
    assert torch.equal(drawn_by_hand.get_state(), state)


@pytest.mark.parametrize("median", [torch.median, torch.nanmedian])
def test_a_median_of_an_expanded_tensor_reads_nothing_past_it(median):
    row = torch.arange(64.0)  # the CPU's kernel reads past it, so that the tensor has to be copied
    for _ in range(20):
        expanded = row.to("hpu").expand(4, 64)
        values, places = median(expanded, 0)
        assert torch.equal(values.cpu(), row)
        assert ((places.cpu() >= 0) & (places.cpu() < 4)).all()
        out = torch.empty(0, device="hpu"), torch.empty(0, dtype=torch.long, device="hpu")
        median(expanded, 0, out=out)
        assert torch.equal(out[0].cpu(), row)


WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 3), (5, 1, 7), (10, 0, 0), (1, 2, 2)])
def test_histc_counts_whole_numbers_in_their_type(dtype, bins, low, high):
    numbers = torch.tensor([[0, 1, 1, 3], [7, 3, 3, 9]])
    expected = torch.histc(numbers.double(), bins, low, high).to(dtype)
    ours = numbers.to(dtype).to("hpu")
    found = torch.histc(ours, bins, low, high)
    assert found.dtype == dtype
    assert torch.equal(found.cpu(), expected)
    memory = torch.zeros(3 * bins, dtype=dtype).to("hpu")
    assert torch.histc(ours, bins, low, high, out=memory[bins : 2 * bins]).dtype == dtype
    assert torch.equal(memory.cpu(), torch.cat([expected * 0, expected, expected * 0]))


def test_histc_puts_a_bound_into_the_bin_that_it_opens():
    assert torch.histc(torch.tensor([49]).to("hpu"), 10, 0, 490).tolist() == [0, 1] + [0] * 8
    assert torch.histc(torch.tensor([5, 5]).to("hpu"), 2).tolist() == [0, 2]
    assert torch.histc(torch.tensor([], dtype=torch.int).to("hpu"), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("bins", "low", "reason"), [(0, 0, "bins must be > 0"), (2, 3, "max must")]
)
def test_histc_of_whole_numbers_refuses_as_of_others(bins, low, reason):
    for dtype in (torch.int32, torch.float32):
        with pytest.raises(RuntimeError, match=reason):
            run(torch.histc, torch.arange(3, dtype=dtype).to("hpu"), bins, low, 1)


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_computes_the_wider_types():
    def compute(numbers, index, whole):
        return torch.take(numbers, index), torch.lerp(whole, whole * 2, 3), numbers.view(-1)

    def sample(n):
        index = torch.tensor([n, 1], dtype=torch.int32)
        return torch.randn(4).to("hpu"), index.to("hpu"), torch.arange(n, n + 2).int().to("hpu")

    assert_replays(compute, sample(0), sample(3))


@pytest.mark.parametrize("requested", [(False, False), (True, False), (False, True), (True, True)])
def test_unique_returns_what_was_requested(requested):
    numbers = torch.tensor([3, 1, 3, 2, 1])
    expected = torch._unique2(numbers, True, *requested)
    found = torch._unique2(numbers.to("hpu"), True, *requested)
    returned = (True, *(each or is_lazy() for each in requested))
    assert [each is not None for each in found] == list(returned)
    for one, other, is_there in zip(found, expected, returned, strict=True):
        if is_there:
            assert torch.equal(one.cpu(), other)


@pytest.mark.parametrize("requested", [(False, False), (True, False), (False, True), (True, True)])
def test_unique_fills_all_outputs_that_are_passed(requested):
    numbers = torch.tensor([3, 1, 3, 2, 1])
    options = (True, *requested)
    expected = torch._unique2(numbers, *options)
    outs = {f"out{i}": torch.zeros(2, dtype=torch.int64, device="hpu") for i in range(3)}
    found = torch.ops.aten._unique2.out(numbers.to("hpu"), *options, **outs)
    for one, out, other in zip(found, outs.values(), expected, strict=True):
        assert one is out
        assert torch.equal(out.cpu(), other)


@pytest.mark.parametrize(
    "options", [{}, {"return_inverse": True}, {"return_counts": True}], ids=str
)
@pytest.mark.parametrize("dim", [None, 0])
@pytest.mark.parametrize("unique", [torch.unique, torch.unique_consecutive])
def test_the_functions_over_unique_return_tensors(unique, dim, options):
    numbers = torch.tensor([[3, 1], [3, 1], [2, 1]])
    found, expected = (unique(x, dim=dim, **options) for x in (numbers.to("hpu"), numbers))
    for one, other in zip(*(x if options else [x] for x in (found, expected)), strict=True):
        assert torch.equal(one.cpu(), other)


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
def test_gelu_refuses_a_form_that_it_does_not_have(gelu, form):
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
@pytest.mark.skipif(is_lazy(), reason="starts processes of both modes")
def test_gelu_takes_its_tanh_form_unless_the_flag_is_off(forked_script, lazy, flags, forms):
    assert forked_script(GELU, simulated=True, PT_HPU_LAZY_MODE=lazy, **flags) == forms
