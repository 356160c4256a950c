"""Test compiled functions whose numbers and sizes change between calls."""

import operator

import pytest

OPERATIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "divide_down": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "reversed_subtract": lambda x, n: n - x,
    "reversed_divide": lambda x, n: n / x,
    "reversed_power": lambda x, n: n**x,
    "greater": operator.gt,
    "equal": operator.eq,
    "add_scaled": lambda x, n: x.add(x, alpha=n),
    "divide_rounded": lambda x, n: x.div(n, rounding_mode="floor"),
    "clamp": lambda x, n: x.clamp(max=n),
    "fill": lambda x, n: x.new_full((2, abs(n) if isinstance(n, int) else 2), n),
    "where": lambda x, n: x.where(x > n, n),
    "masked_fill": lambda x, n: x.masked_fill(x > n, n),
    "lerp": lambda x, n: x.lerp(x.sqrt(), n),
}


def all_of(functions):
    """Return one function that calls all functions, because each compiled graph takes seconds."""
    return lambda x, n: {name: function(x, n) for name, function in functions.items()}


def _agree(torch, compiled, function, *calls):
    for arguments in calls:
        result, expected = compiled(*arguments), function(*arguments)
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
        assert layout(torch, result) == layout(torch, expected)


def layout(torch, value):
    return torch.utils._pytree.tree_map(
        lambda leaf: (leaf.dtype, leaf.stride()) if isinstance(leaf, torch.Tensor) else type(leaf),
        value,
    )


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("numbers", [(2, 3, 4, -5), (2.5, 3.5, 4.0, -0.5)], ids=["int", "float"])
def test_number_may_change_between_calls(torch, compile_on_hpu, numbers, dynamic):
    function = all_of(OPERATIONS)
    x = torch.rand(3, 4, device="hpu") * 3 + 0.5
    compiled = compile_on_hpu(function, dynamic=dynamic)
    _agree(torch, compiled, function, *[(x, number) for number in numbers])


@pytest.mark.parametrize("name", ["add", "divide", "power"])
def test_changing_number_may_be_used_once(torch, compile_on_hpu, name):
    function = OPERATIONS[name]
    x = torch.rand(3, 4, device="hpu") + 0.5
    _agree(torch, compile_on_hpu(function), function, *[(x, number) for number in (2, 3, 4, 5.5)])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bfloat16", "float64", "bool"])
def test_changing_number_is_promoted_like_a_python_number(torch, compile_on_hpu, dtype):
    x = torch.ones(3, device="hpu").to(getattr(torch, dtype))
    function = all_of({name: OPERATIONS[name] for name in ("add", "multiply", "divide", "greater")})
    for numbers in ((2, 3, 4), (2.5, 3.5, 4.5)):
        torch._dynamo.reset()
        compiled = compile_on_hpu(function)
        _agree(torch, compiled, function, *[(x, number) for number in numbers])


def test_changing_numbers_are_supported_in_in_place_operators(torch, compile_on_hpu):
    def write(x, n):
        x.add_(n).mul_(n).div_(n + 1).sub_(1 - n)
        return x * n

    compiled = compile_on_hpu(write)
    for n in (2, 3, 4, 7):
        actual, expected = (torch.arange(4.0, device="hpu") for _ in range(2))
        assert torch.equal(compiled(actual, n), write(expected, n))
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("dynamic", [None, True])
def test_division_by_a_changing_size_is_supported(torch, compile_on_hpu, dynamic):
    def mean(x):
        return x.sum(0) / x.shape[0], x // x.shape[1], x.shape[0] * 2, x.mean() * x.numel()

    compiled = compile_on_hpu(mean, dynamic=dynamic)
    _agree(torch, compiled, mean, *[(torch.rand(n, n + 1, device="hpu"),) for n in (4, 5, 7, 2)])


@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients_are_correct_for_changing_sizes_and_numbers(torch, compile_on_hpu, dynamic):
    def loss(x, n):
        return ((x * n).sum(0) / x.shape[0] - x.shape[1] * x.mean(0)).square().sum() / n

    compiled = compile_on_hpu(loss, dynamic=dynamic)
    for rows, n in ((4, 2), (5, 3), (7, 4)):
        x = torch.rand(rows, 3, device="hpu", requires_grad=True)
        (actual,) = torch.autograd.grad(compiled(x, n), x)
        (expected,) = torch.autograd.grad(loss(x, n), x)
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride()


SHAPES = {
    "view": lambda x, n: x.view(n, -1) + n,
    "slice": lambda x, n: x[n:, : n + 1],
    "narrow": lambda x, n: x.narrow(0, 1, n),
    "expand": lambda x, n: x[:1, None].expand(-1, n, -1),
    "repeat": lambda x, n: x.repeat(n, 1),
    "zeros": lambda x, n: torch_zeros(x, n),
    "arange": lambda x, n: x.new_ones(n).cumsum(0) * n,
    "pad": lambda x, n: pad(x, n),
    "roll": lambda x, n: x.roll(n, 0),
    "select": lambda x, n: x[n] * x[-n],
    "chunks": lambda x, n: x.split(n)[0] + n,
    "sizes": lambda x, n: (x.size(0) + n, n * 2, n // 2, x.reshape(-1, n).shape[0]),
    "unfold": lambda x, n: x.unfold(0, n, 1),
    "topk": lambda x, n: x.topk(n, 0).values,
}


def torch_zeros(x, n):
    return x.new_zeros((n, n + 1)) + n


def pad(x, n):
    import torch

    return torch.nn.functional.pad(x, (n, 0, 1, n), value=n)


@pytest.mark.parametrize("dynamic", [None, True])
def test_changing_numbers_are_supported_as_sizes(torch, compile_on_hpu, dynamic):
    function = all_of(SHAPES)
    x = torch.rand(12, 12, device="hpu")
    compiled = compile_on_hpu(function, dynamic=dynamic)
    _agree(torch, compiled, function, *[(x, n) for n in (2, 3, 4, 6)])


def test_changing_number_may_select_the_axis(torch, compile_on_hpu):
    x = torch.rand(4, 5, device="hpu")

    def total(x, n):
        return x.sum(n)

    _agree(torch, compile_on_hpu(total), total, *[(x, n) for n in (0, 1, -1)])


def test_changing_sizes_are_compiled_twice(torch, compile_on_hpu, compilations):
    compiled = compile_on_hpu(lambda x, n: x * n / x.shape[0])
    for n in (2, 3, 4, 5, 6):
        assert compiled(torch.ones(n, device="hpu"), n).tolist() == [1.0] * n
    assert compilations() == 2
