"""Test outputs of any size, and views that share their storage."""

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.internal import is_lazy

# Outputs, as parts of a base of twelve numbers
TARGETS = {
    "empty": lambda base: base.new_empty(0),
    "nothing_of_the_start": lambda base: base[0:0],
    "nothing_with_an_offset": lambda base: base[4:4],
    "nothing_of_the_end": lambda base: base[12:12],
    "smaller": lambda base: base[3:5],
    "larger": lambda base: base,
    "strided": lambda base: base[1::2],
    "transposed": lambda base: base.view(3, 4).t(),
}
# Operations on a tensor of 2 x 3 numbers
RESULTS = {
    "add": lambda x, out: torch.add(x, 1, out=out),
    "cat": lambda x, out: torch.cat([x, x * 2], out=out),
    "stack": lambda x, out: torch.stack([x, x], out=out),
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "matmul": lambda x, out: torch.matmul(x, x.t(), out=out),
    "where": lambda x, out: torch.where(x > 1, x, -x, out=out),
    "arange": lambda x, out: torch.arange(5, out=out),
    "linspace": lambda x, out: torch.linspace(0, 1, 5, out=out),
    "clamp": lambda x, out: torch.clamp(x, 1, 3, out=out),
    "index_select": lambda x, out: torch.index_select(
        x, 0, torch.tensor([1, 0, 1], device=x.device), out=out
    ),
    "masked_select": lambda x, out: torch.masked_select(x, x > 1, out=out),
}
PAIRS = {
    "max": lambda x, out: torch.max(x, 1, out=out),
    "topk": lambda x, out: torch.topk(x, 2, out=out),
    "sort": lambda x, out: torch.sort(x, 1, descending=True, out=out),
    "cummax": lambda x, out: torch.cummax(x, 0, out=out),
    "kthvalue": lambda x, out: torch.kthvalue(x, 1, out=out),
    "mode": lambda x, out: torch.mode(x, 1, out=out),
}
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")


def layout(tensor):
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def same(actual, expected):
    for on_hpu, on_cpu in zip(actual, expected, strict=True):
        assert layout(on_hpu) == layout(on_cpu)
    for on_hpu, on_cpu in zip(actual, expected, strict=True):
        torch.testing.assert_close(on_hpu.cpu(), on_cpu, equal_nan=True)


def write(device, result, target, pending=False):
    x = torch.tensor([[0.0, 1.0, 2.0], [5.0, 4.0, 3.0]]).to(device)
    base = torch.arange(12.0).to(device)
    if pending:
        base = base + 0  # in lazy mode, not allocated yet
    other = base[2:8]
    out = target(base)
    returned = result(x, out)
    assert returned is out
    return [base, other, out, out + 1, base * 2]


@pytest.mark.parametrize("pending", [False, True], ids=["with_memory", "recorded"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("result", RESULTS)
def test_output_matches_the_cpu(result, target, pending):
    expected = write("cpu", RESULTS[result], TARGETS[target])
    same(write("hpu", RESULTS[result], TARGETS[target], pending), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("result", PAIRS)
def test_two_outputs_match_the_cpu(result, target):
    def both(device):
        x = torch.tensor([[0.0, 1.0, 2.0], [5.0, 4.0, 3.0]]).to(device)
        base, indices = torch.arange(12.0).to(device), torch.zeros(7, dtype=torch.long).to(device)
        out = TARGETS[target](base), indices[5:5]
        PAIRS[result](x, out)
        return [base, indices, *out]

    same(both("hpu"), both("cpu"))


SHARED = {
    "one row": lambda device: torch.zeros(1, 3, device=device).expand(4, 3),
    "one column": lambda device: torch.zeros(4, 1, device=device).expand(4, 3),
    "windows": lambda device: torch.zeros(6, device=device).as_strided((4, 3), (1, 1)),
}
INTO_SHARED = {
    "cat": lambda x, out: torch.cat([x[:1], x[1:]], out=out),
    "stack": lambda x, out: torch.stack(list(x), out=out),
    "add": lambda x, out: torch.add(x, 1, out=out),
    "mul_": lambda x, out: out.mul_(x),
    "masked_fill_": lambda x, out: out.masked_fill_(x > 1, 2.0),
    "index_add_": lambda x, out: out.index_add_(0, torch.arange(4, device=x.device), x),
    "gather": lambda x, out: torch.gather(x, 0, torch.zeros_like(x).long(), out=out),
    "sort": lambda x, out: torch.sort(x, 0, out=(out, torch.zeros_like(x).long())),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "where": lambda x, out: torch.where(x > 1, x, -x, out=out),
}


def raised(work, device):
    """Return the output, or the message of its error."""
    try:
        return work(torch.arange(12.0, device=device).view(4, 3), device).cpu()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("rows", [4, 40_000], ids=["small", "large"])
def test_cat_rejects_an_expanded_output(rows):
    x = torch.ones(rows, 16, device="hpu")
    out = torch.zeros(1, 16, device="hpu").expand(2 * rows, 16)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.cat([x, x], out=out)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("into", INTO_SHARED)
def test_output_that_overlaps_itself_is_rejected_like_on_the_cpu(into, shared):
    def work(x, device):
        out = SHARED[shared](device)
        INTO_SHARED[into](x, out)
        return out

    actual, expected = raised(work, "hpu"), raised(work, "cpu")
    if isinstance(expected, str):
        assert actual == expected
    else:
        assert torch.equal(actual, expected)


def test_output_that_overlaps_an_operand_is_rejected_like_on_the_cpu():
    def outer_product(x, device):
        base = torch.arange(13.0, device=device)
        vectors = torch.ones(4, device=device), torch.ones(3, device=device)
        return torch.addr(base[:-1].view(4, 3), *vectors, out=base[1:].view(4, 3))

    assert "refer to a single memory location" in raised(outer_product, "cpu")
    assert raised(outer_product, "hpu") == raised(outer_product, "cpu")


@pytest.mark.parametrize("reduce", [torch.any, torch.all])
def test_output_of_the_wrong_type_is_rejected_like_on_the_cpu(reduce):
    def reduced(x, device):
        return reduce(x, (0, 1), out=torch.empty((), dtype=torch.int16, device=device))

    assert "only supports bool tensor for result" in raised(reduced, "cpu")
    assert raised(reduced, "hpu") == raised(reduced, "cpu")


def test_outputs_of_decompositions_match_the_cpu():
    def results(device):
        matrix = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]).to(device)
        base = torch.zeros(20).to(device)
        sign, logarithm = base[2:2], base[9:9]
        torch.linalg.slogdet(matrix, out=(sign, logarithm))
        factor = base[4:4]
        torch.linalg.cholesky(matrix, out=factor)
        return [base, sign, logarithm, factor]

    same(results("hpu"), results("cpu"))


def test_operand_may_be_its_own_output():
    def doubled(device):
        x = torch.arange(3.0).to(device) + 1
        torch.add(x, x, out=x)
        return [x]

    same(doubled("hpu"), doubled("cpu"))


def test_resized_and_shared_storages_keep_their_values():
    def resized(device):
        x = torch.arange(4.0).to(device) * 2
        view = x[1:3]
        x.resize_(2, 3)
        x[1, 1:].fill_(7)
        view.add_(1)
        y = torch.zeros(2).to(device) + 1
        z = torch.empty(0).to(device).set_(y)
        y.resize_(5)[2:].zero_()
        z.mul_(3)
        return [x, view, y, z]

    same(resized("hpu"), resized("cpu"))


def test_view_beyond_the_end_of_its_storage_is_supported():
    # fftfreq creates such a view.
    for n in (5, 6, 1):
        torch.testing.assert_close(
            torch.fft.fftfreq(n, device="hpu").cpu(), torch.fft.fftfreq(n), rtol=0, atol=0
        )


@pytest.mark.skipif(not is_lazy(), reason="HPU Graphs need lazy mode")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("result", sorted(set(RESULTS) - {"masked_select"}))
def test_each_replay_writes_the_captured_output(result, target):
    def work(x, base):
        base = base + 0
        out = TARGETS[target](base)
        RESULTS[result](x, out)
        return [base, out, out + 1]

    static = [torch.ones(2, 3, device="hpu"), torch.ones(12, device="hpu")]
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        captured = work(*static)
    for seed in range(3):
        torch.manual_seed(seed)
        fresh = [torch.randn(2, 3), torch.randn(12)]
        for tensor, value in zip(static, fresh, strict=True):
            tensor.copy_(value)
        graph.replay()
        same(captured, work(*fresh))


@pytest.mark.skipif(not is_lazy(), reason="eager mode allocates immediately")
def test_growing_storage_of_a_recorded_tensor_is_counted_once():
    htcore.mark_step()
    before = torch.hpu.memory_allocated()
    out = torch.empty(4, device="hpu")
    torch.arange(256.0, device="hpu", out=out)
    htcore.mark_step()
    assert torch.hpu.memory_allocated() - before == 1024
    del out
    assert torch.hpu.memory_allocated() == before
