"""64-bit types on the device: float64 is stored as float32, and in lazy mode int64 as int32."""

import io
import json

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.internal import is_lazy

WIDE = torch.tensor([[0.1, -1 / 3, 1e-3], [2 / 7, 1e9 + 0.7, float("nan")]], dtype=torch.float64)
LARGEST = torch.finfo(torch.float32).max


def kept(values):
    """Return CPU values in the precision of the device."""
    return values.float().double()


def assert_kept(result, reference):
    """Check that a float64 result has float32 values close to the reference."""
    assert result.device.type == "hpu"
    assert result.dtype == torch.float64
    values = result.cpu()
    torch.testing.assert_close(values, kept(values), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(values, reference, rtol=1e-6, atol=1e-12, equal_nan=True)


def written_in_place(write):
    def written(x):
        y = x.clone()
        write(y)
        return y

    return written


def into_view(x):
    y = torch.zeros(3, 4, dtype=x.dtype, device=x.device)
    torch.mul(x.t(), 0.7, out=y[:, ::2])
    return y


def running_statistics(x):
    """Return batch statistics, which the operator writes without declaring them as outputs."""
    kept = torch.zeros(2, 2, dtype=x.dtype, device=x.device)
    torch.nn.functional.batch_norm(x[:, :2], kept[0], kept[1], training=True)
    return kept


def through_a_complex_view(y):
    torch.view_as_complex(y.view(3, 2)[:2]).mul_(0.3 + 0.1j)


WAYS = {
    "copied from the host": lambda x: x + 0,
    "clone": torch.clone,
    "elementwise": lambda x: x * 0.3,
    "of a transposed tensor": lambda x: x.t() / 3,
    "several results": lambda x: torch.frexp(x)[0],
    "a list of results": lambda x: torch._foreach_mul([x, x[0]], 0.7)[1],
    "a reduction": lambda x: x[:, :2].sum(0) / 3,
    "an expanded operand": lambda x: x.expand(2, 2, 3) * 0.3,
    "a view": lambda x: (x * 0.3).t()[1:],
    "full": lambda x: torch.full((2,), 0.1, dtype=x.dtype, device=x.device),
    "linspace": lambda x: torch.linspace(0, 1, 7, dtype=x.dtype, device=x.device),
    "a wider sum": lambda x: x[:, :2].float().sum(dtype=x.dtype) / 3,
    "from float32": lambda x: x.float().double() * 0.3,
    "add_": written_in_place(lambda y: y.add_(0.3)),
    "a slice": written_in_place(lambda y: y[:, ::2].mul_(0.3)),
    "a column": written_in_place(lambda y: y.t()[1].fill_(0.3)),
    "masked_fill_": written_in_place(lambda y: y.masked_fill_(y > 0, 0.3)),
    "index_put_": written_in_place(lambda y: y.index_put_((y[:, 0] > 0,), y[0] * 0.3)),
    "copy_": written_in_place(lambda y: y.copy_(y.t()[:1].t() / 3)),
    "a list of tensors": written_in_place(lambda y: torch._foreach_div_([y, y], 3)),
    "resize_ and fill": written_in_place(lambda y: y.resize_(5).fill_(0.1)),
    "out": lambda x: torch.mul(x, 0.3, out=torch.empty(0, dtype=x.dtype, device=x.device)),
    "out as a view": into_view,
    "matmul": lambda x: x[:, :2] @ x[:, :2].t(),
    "softmax": lambda x: x[:, :2].softmax(1),
    "running statistics": running_statistics,
    "a part of complex128": lambda x: (torch.complex(x[:, :2], x[:, :2]) * 0.3).imag,
    "a Fourier transform": lambda x: torch.fft.fft(x[:, :2]).real,
    "a complex view": written_in_place(through_a_complex_view),
}


@pytest.mark.parametrize("way", WAYS)
def test_float64_is_rounded_to_float32(way):
    compute = WAYS[way]
    assert_kept(compute(WIDE.to("hpu")), compute(kept(WIDE)))


def test_gradients_of_float64_are_rounded_to_float32():
    def gradients(x):
        x.requires_grad_()
        (x.exp() / 3).sum().backward()
        return x.grad

    assert_kept(gradients(WIDE[:1].to("hpu")), gradients(kept(WIDE[:1])))


def test_scalars_next_to_float64_tensors_are_rounded_to_float32():
    x = torch.full((2,), 0.1, dtype=torch.float64, device="hpu")
    scalar = torch.tensor(0.1, dtype=torch.float64)
    for same in (x == 0.1, x.eq(0.1), x == scalar, scalar == x, torch.isin(x, 0.1)):
        assert same.tolist() == [True, True]
    assert (x - 0.1).tolist() == [0, 0]
    assert torch.complex(x, x).eq(0.1 + 0.1j).tolist() == [True, True]
    assert x.clamp(min=0.1).eq(x).tolist() == [True, True]
    assert scalar.item() == 0.1  # the host tensor is unchanged


def test_uniform_numbers_stay_below_the_upper_bound():
    below = torch.empty(1000, dtype=torch.float64, device="hpu").uniform_(1 - 2**-26, 1)
    assert below.lt(1).all().item()


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        (torch.float32, 4),
        (torch.float64, 4),
        (torch.complex128, 8),
        (torch.int64, 4 if is_lazy() else 8),
    ],
)
def test_memory_counters_use_the_stored_width(dtype, width):
    steps = []
    htcore.mark_step()
    before = torch.hpu.memory_allocated()

    def step(elements):
        htcore.mark_step()
        steps.append(((torch.hpu.memory_allocated() - before) / width, elements))

    x = torch.ones(1000, dtype=dtype, device="hpu")
    step(1000)
    y = x + x
    step(2000)
    x.resize_(3000).fill_(1)
    step(4000)
    y.resize_(0)
    torch.add(x, x, out=y)
    step(6000)
    x = x[:10].clone()
    step(3010)
    y.untyped_storage().resize_(0)
    step(10)
    y.untyped_storage().resize_(3000 * dtype.itemsize)
    y.fill_(1)
    step(3010)
    del x, y
    step(0)
    assert [counted for counted, _ in steps] == [elements for _, elements in steps]


def test_loaded_tensors_use_the_stored_width():
    file = io.BytesIO()
    torch.save({"a": WIDE, "b": WIDE[0]}, file)
    file.seek(0)
    htcore.mark_step()
    before = torch.hpu.memory_allocated()
    loaded = torch.load(file, map_location="hpu")
    htcore.mark_step()
    assert torch.hpu.memory_allocated() - before == WIDE.numel() * 4
    assert_kept(loaded["a"], kept(WIDE))
    assert_kept(loaded["b"], kept(WIDE[0]))
    assert loaded["a"].untyped_storage().data_ptr() == loaded["b"].untyped_storage().data_ptr()


@pytest.mark.skipif(is_lazy(), reason="lazy mode checks the range of host values")
def test_eager_mode_converts_out_of_range_values_silently():
    huge = torch.tensor([1e300, -1e300, float("inf"), float("nan")], dtype=torch.float64)
    converted = huge.to("hpu").cpu()
    infinite = torch.tensor([torch.inf, -torch.inf, torch.inf, torch.nan], dtype=torch.float64)
    torch.testing.assert_close(converted, infinite, equal_nan=True)
    assert torch.tensor([2**40]).to("hpu").add(1).tolist() == [2**40 + 1]


@pytest.mark.skipif(not is_lazy(), reason="eager mode has int64")
def test_lazy_mode_rejects_out_of_range_values():
    held = torch.zeros(3, dtype=torch.int64, device="hpu")
    doubles = torch.zeros(3, dtype=torch.float64, device="hpu")
    values = torch.tensor([[-5, 7], [2**40, 9], [3, 8]]).t()[0]
    infinite = torch.tensor([1e300, float("nan"), float("inf")], dtype=torch.float64)
    conjugate = torch.tensor([2 + 1e39j], dtype=torch.complex128).conj()
    long = "Long to Int, Input values range [-5, 1099511627776] exceeds Int range [-2147483648, "
    double = "Double to Float, Input values range {} exceeds Float range [-3.40282e+38, "
    for use, message in (
        (lambda: values.to("hpu"), f"{long}2147483647]"),
        (lambda: held.copy_(values), f"{long}2147483647]"),
        (lambda: held + values, f"{long}2147483647]"),
        (lambda: doubles.copy_(infinite), double.format("[1e+300, 1e+300]") + "3.40282e+38]"),
        (lambda: conjugate.to("hpu"), double.format("[-1e+39, 2]") + "3.40282e+38]"),
    ):
        with pytest.raises(RuntimeError) as error:
            use()
        assert str(error.value) == f"Error when trying to cast {message}"
    assert held.tolist() == doubles.tolist() == [0, 0, 0]
    assert doubles.copy_(torch.tensor([LARGEST, float("-inf"), 0.0]).double()).tolist() == [
        LARGEST,
        float("-inf"),
        0,
    ]


@pytest.mark.skipif(not is_lazy(), reason="eager mode has int64")
def test_int64_wraps_around_in_lazy_mode():
    x = torch.tensor([2**31 - 1, -(2**31), 5], device="hpu")
    assert (x + 1).tolist() == [-(2**31), -(2**31) + 1, 6]
    assert x.mul(3).sum().item() == (3 * (2**31 - 1 - 2**31 + 5) + 2**31) % 2**32 - 2**31
    x.t().sub_(1)
    assert x.tolist() == [2**31 - 2, 2**31 - 1, 4]
    drawn = torch.empty(1000, dtype=torch.int64, device="hpu").random_()
    assert drawn.ge(0).all().item()
    assert torch.tensor([1.5, 2.0**33 + 2**10], device="hpu").long().tolist() == [1, 1024]


@pytest.mark.skipif(not is_lazy(), reason="HPU Graphs need lazy mode")
def test_replay_uses_the_stored_width():
    whole = torch.tensor([2**31 - 1, 1], device="hpu")
    x = torch.tensor([0.1, 0.2], dtype=torch.float64, device="hpu")
    total = torch.zeros(2, dtype=torch.float64, device="hpu")
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        wrapped = whole + 1
        third = x / 3
        total.add_(0.1)
        same = x == 0.1
    graph.replay()
    graph.replay()
    assert wrapped.tolist() == [-(2**31), 2]
    assert_kept(third, x.cpu() / 3)
    assert_kept(total, torch.full((2,), 0.3, dtype=torch.float64))
    assert same.tolist() == [True, False]


@pytest.mark.skipif(is_lazy(), reason="lazy mode does not compile")
def test_compiled_graph_uses_the_stored_width():
    compiled = torch.compile(lambda x, y: (y.add_(x * 0.3), x == 0.1), backend="hpu_backend")
    x = torch.full((2, 2), 0.1, dtype=torch.float64, device="hpu")
    total, same = compiled(x, x.t().clone())
    assert_kept(total, torch.full((2, 2), 0.13, dtype=torch.float64))
    assert same.all().item()


# Prints the device sizes of a float64 and an int64, and whether a value that does not fit into 32
# bits is kept.
PROGRAM = """
import json, torch
import habana_frameworks.torch.core as htcore
def is_kept(value):
    try:
        return torch.tensor([value], dtype=type_).to("hpu").tolist()[0] == value
    except RuntimeError as error:
        return str(error).partition(",")[0]
results = []
for type_, value in ((torch.float64, 0.1), (torch.int64, 2**40)):
    before = torch.hpu.memory_allocated()
    x = torch.ones(1, dtype=type_, device="hpu")
    htcore.mark_step()
    results += [torch.hpu.memory_allocated() - before, is_kept(value)]
    del x
print(json.dumps(results))
"""
REJECTED = "Error when trying to cast Long to Int"
LAZY = {"PT_HPU_LAZY_MODE": "1"}
FIRST = {"HPU_MAGIC_CARD": "gaudi"}
INT64 = {"PT_ENABLE_INT64_SUPPORT": "1"}
RULES = [
    ({}, [4, False, 8, True]),
    (FIRST, [4, False, 4, False]),
    (FIRST | INT64, [4, False, 8, True]),
    (LAZY, [4, False, 4, REJECTED]),
    (LAZY | {"PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK": "0"}, [4, False, 4, False]),
    (LAZY | INT64, [4, False, 8, True]),
    (LAZY | {"HPU_MAGIC_EXACT_64_BIT": "1"}, [8, True, 8, True]),
    (FIRST | {"HPU_MAGIC_EXACT_64_BIT": "1"}, [8, True, 8, True]),
]


@pytest.mark.once
@pytest.mark.parametrize(("environment", "expected"), RULES)
def test_mode_generation_and_flags_determine_the_stored_width(environment, expected, forked_script):
    settings = {"PT_HPU_LAZY_MODE": "0"} | environment
    assert json.loads(forked_script(PROGRAM, simulated=True, **settings)) == expected


@pytest.mark.once
@pytest.mark.parametrize("lazy", ["0", "1"])
def test_card_has_room_for_twice_as_many_float64_values(lazy, forked_script):
    code = """
    import torch
    import habana_frameworks.torch.core as htcore
    x = torch.ones(48 << 10, dtype=torch.float64).to("hpu")
    y = x + x
    z = torch.cat([y, y])
    htcore.mark_step()
    print(torch.hpu.memory_allocated(), torch.hpu.max_memory_allocated())
    try:
        w = z + z
        htcore.mark_step()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    """
    settings = {"PT_HPU_LAZY_MODE": lazy, "HPU_MAGIC_MEMORY": "1MiB"}
    assert forked_script(code, simulated=True, **settings).splitlines() == [
        f"{4 * (192 << 10)} {4 * (192 << 10)}",
        f"[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::{4 * (96 << 10)} "
        "(0.375)MB",
    ]
