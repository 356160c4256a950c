"""Embedding bags and the optimizers of their rows, against float64: within 1e-5."""

import itertools
import re

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import _hpex_C  # noqa: E402
from habana_frameworks.torch.hpex import kernels  # noqa: E402
from habana_frameworks.torch.hpex.kernels import EmbeddingBag, EmbeddingBagPreproc  # noqa: E402
from habana_frameworks.torch.hpex.kernels.RandomSeed import random_seed  # noqa: E402
from habana_frameworks.torch.hpex.optimizers.SparseAdagrad import SparseAdagrad  # noqa: E402
from habana_frameworks.torch.hpex.optimizers.SparseSGD import SparseSGD  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_replays, run  # noqa: E402

LAZY = pytest.mark.skipif(not is_lazy(), reason="lazy mode's own")
INDICES, OFFSETS = [3, 1, 3, 0, 3], [0, 2, 2, 5]


def samples(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def whole(*values):
    return [torch.tensor(each, dtype=torch.int32) for each in values]


def on_device(*values):
    return [each.to("hpu") for each in values]


def assert_near(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def sums(table, indices, offsets):
    bounds = itertools.pairwise(offsets)
    return torch.stack([table[indices[a:b]].double().sum(0) for a, b in bounds])


@LAZY
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_bag_is_the_sum_of_its_rows(mode, dtype):
    table = samples(4, 3, dtype=dtype)
    given = on_device(table, *whole(INDICES, OFFSETS, [5]))
    found = EmbeddingBag.forward(*given, mode)
    assert (found.dtype, found.shape) == (dtype, (3, 3))
    assert_near(found, sums(table, INDICES, OFFSETS), 1e-5 if dtype is torch.float32 else 1e-2)


@LAZY
def test_mode_0_gathers_a_row_for_each_index():
    table = samples(4, 3)
    found = EmbeddingBag.forward(*on_device(table, *whole(INDICES, OFFSETS, [5])), 0)
    assert torch.equal(found.cpu(), table[INDICES])


def test_the_indices_of_bags_are_sorted_by_row():
    count, rows, bags, row_offsets = EmbeddingBagPreproc.forward(*whole(INDICES, OFFSETS), 4)
    assert [each.dtype for each in (count, rows, bags, row_offsets)] == [torch.int32] * 4
    assert (count.tolist(), rows[:3].tolist()) == ([3], [0, 1, 3])
    assert (bags.tolist(), row_offsets[:4].tolist()) == ([2, 0, 0, 2, 2], [0, 1, 2, 5])
    assert (rows.shape, row_offsets.shape) == ((5,), (6,))


@pytest.mark.parametrize(
    ("indices", "offsets", "said"),
    [
        ([4], [0, 1], "must be between 0 and 3, but range from 4 to 4."),
        ([1], [0, 2], "must increase from 0 to its 1 indices, but are [0, 2]."),
        ([1], [], "must increase from 0 to its 1 indices, but are []."),
    ],
)
def test_what_cannot_be_sorted_is_refused(indices, offsets, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        EmbeddingBagPreproc.forward(*whole(indices, offsets), 4)


@LAZY
@pytest.mark.parametrize("step", [SparseSGD, SparseAdagrad])
def test_a_table_is_trained_by_the_rows_that_bags_use(step):
    table, moments, upstream = samples(4, 3), torch.rand(4, 3), samples(3, 3, seed=1)
    count, rows, bags, row_offsets = EmbeddingBagPreproc.forward(*whole(INDICES, OFFSETS), 4)
    gradients = torch.ones(5, 3)
    given = on_device(gradients, upstream, bags, row_offsets, torch.cat([count, count + 1]))
    found = EmbeddingBag.backward(*given, 1)
    exact = torch.ones(5, 3).double()
    exact[:3] += torch.stack([upstream[2], upstream[0], upstream[0] + 2 * upstream[2]]).double()
    assert_near(found, exact)
    assert torch.equal(given[0].cpu(), found.cpu())  # in place

    weight, moment = on_device(table, moments)
    rate = torch.tensor([0.1]).to("hpu")
    step.forward(given[0], weight, moment, rows.to("hpu"), rate, count.to("hpu"))
    used = [0, 1, 3]
    new_table, new_moments = table.double(), moments.double()
    if step is SparseSGD:
        new_moments[used] = exact[:3]
        new_table[used] -= 0.1 * exact[:3]
    else:
        new_moments[used] += exact[:3] ** 2
        new_table[used] -= 0.1 * exact[:3] / (new_moments[used].sqrt() + 1e-10)
    assert_near(weight, new_table)
    assert_near(moment, new_moments)


@LAZY
def test_momentum_and_gradients_of_one_row_add_up():
    weight, moment = torch.zeros(3, 2).to("hpu"), torch.ones(3, 2).to("hpu")
    gradients, (rows, count) = torch.ones(3, 2), whole([1, 1, 0], [2])
    given = on_device(gradients, rows, torch.tensor([0.5]), count)
    _hpex_C.sparse_sgd_with_valid_count(
        given[0], weight, moment, given[1], given[2], given[3], 0.9, True
    )
    assert moment.tolist() == [[1, 1], [pytest.approx(2.9)] * 2, [1, 1]]
    assert weight.tolist() == [[0, 0], [pytest.approx(-0.5 * (2 + 0.9 * 2.9))] * 2, [0, 0]]


@LAZY
def test_a_lookup_sums_the_bags_of_each_table():
    first, second = samples(4, 3), samples(2, 3, seed=1)
    weights = torch.cat([first.flatten(), second.flatten()])
    indices, offsets = [3, 1, 3, 0, 1, 1], [0, 2, 3, 4, 6]
    given = on_device(weights, torch.tensor([0, 12]), torch.tensor([0, 3, 6]))
    bags = on_device(*whole(indices, offsets))
    found = kernels.split_embedding_codegen_lookup_function(*given, 6, *bags, 0)
    expected = [sums(first, indices, offsets[:3]), sums(second, indices, offsets[2:])]
    assert_near(found, torch.cat(expected, 1))
    one_each = on_device(*whole([3, 1, 0, 1], [0, 1, 2, 3, 4]))
    gathered = kernels.split_embedding_codegen_lookup_function(*given, 6, *one_each, 0, [0, 1])
    assert torch.equal(gathered.cpu(), torch.cat([first[[3, 1]], second[[0, 1]]], 1))


def test_a_lookup_asserts_in_the_vendors_words():
    lookup = kernels.split_embedding_codegen_lookup_function
    given = torch.ones(12), torch.tensor([0]), torch.tensor([0, 3])
    bags = whole([0], [0, 1])
    with pytest.raises(AssertionError, match=r"^Only PoolingMode\.SUM is supported for HPU$"):
        lookup(*given, 3, *bags, 1)
    with pytest.raises(AssertionError, match=r"^total_D \(4\) must match D_offsets\[-1\] \(3\)$"):
        lookup(*given, 4, *bags, 0)
    with pytest.raises(AssertionError, match="All tables must have as many channels"):
        lookup(*given[:2], torch.tensor([0, 1, 3]), 3, *bags, 0)


@LAZY
@pytest.mark.parametrize(
    ("table", "indices", "offsets", "count", "mode", "said"),
    [
        (torch.ones(4), [0], [0, 1], [1], 1, "Input tensor should be 2D"),
        (torch.ones(4, 2), [[0]], [0, 1], [1], 1, "index tensor cannot be more than 1D"),
        (torch.ones(4, 2), [0], [0, 1], [[1]], 1, "valid count tensor should be 1D"),
        (torch.ones(4, 2), [0], [0, 1], [1], 3, "must be 0, 1 or 2, but is 3."),
        (torch.ones(4, 2), [0], [0, 2], [1], 1, "must be between 0 and 1"),
        (torch.ones(4, 2), [4], [0, 1], [1], 1, "index out of range"),
    ],
    ids=["table", "indices", "count", "mode", "offsets", "row"],
)
def test_what_a_bag_does_not_take_is_refused(table, indices, offsets, count, mode, said):
    given = on_device(table, *whole(indices, offsets, count))
    with pytest.raises((RuntimeError, IndexError)) as refused:
        run(EmbeddingBag.forward, *given, mode)
    assert said in str(refused.value)


def test_a_seed_is_taken_as_a_card_takes_it():
    with pytest.raises(TypeError, match=r"^Only int32 seed is accepted, got: torch\.int64$"):
        random_seed(torch.tensor([1]))
    with pytest.raises(ValueError, match="HPU RandomSeed is only supported on hpu device"):
        random_seed(*whole([1]))
    (seed,) = on_device(*whole([1]))
    if is_lazy():
        assert random_seed(seed).tolist() == [1]
    else:
        with pytest.raises(RuntimeError, match="not supported with new Eager mode"):
            random_seed(seed)


@LAZY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_product_has_the_type_that_is_asked_for(dtype):
    a, b = samples(2, 3, 4, dtype=torch.bfloat16), samples(4, 5, dtype=torch.bfloat16, seed=1)
    grad = samples(2, 3, 5, dtype=torch.bfloat16, seed=2)
    given = on_device(a, b)
    found = _hpex_C.matmul_ex(*given, dtype)
    of_a, of_b = _hpex_C.matmul_ex_backward(grad.to("hpu"), *given, dtype)
    assert {each.dtype for each in (found, of_a, of_b)} == {dtype}
    tolerance = 1e-5 if dtype is torch.float32 else 1e-2
    assert_near(found, a.double() @ b.double(), tolerance)
    assert_near(of_a, grad.double() @ b.double().T, tolerance)
    assert_near(of_b, torch.einsum("bmk,bmn->kn", a.double(), grad.double()), tolerance)


def everything(table, indices, offsets, count, out, weight, moment, rate):
    summed = EmbeddingBag.forward(table, indices, offsets, count, 1)
    into = out.clone()
    EmbeddingBag.backward(into, summed, *whole_on_device([0, 1, 0], [0, 2, 2, 3], [3]), 1)
    stepped = weight.clone(), moment.clone()
    SparseAdagrad.forward(into, *stepped, offsets[:3], rate, count)
    return summed, into, *stepped


def whole_on_device(*values):
    return on_device(*whole(*values))


def operands(seed=0):
    numbers = samples(4, 3, seed=seed), samples(3, 3, seed=seed + 1), samples(4, 3, seed=seed + 2)
    bags = whole([3, 1, seed, 0], [0, 2, 3, 4], [2])
    rest = torch.rand(4, 3), torch.tensor([0.1])
    return on_device(numbers[0], *bags, *numbers[1:], *rest)


@LAZY
def test_a_replay_sums_what_lies_in_the_captured_inputs():
    assert_replays(everything, operands(), operands(seed=2))
