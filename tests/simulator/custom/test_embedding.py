"""Test embedding bags and sparse optimizers against float64: within 1e-5."""

import itertools

import pytest
import torch
from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch.hpex import kernels
from habana_frameworks.torch.hpex.kernels import EmbeddingBag, EmbeddingBagPreproc
from habana_frameworks.torch.hpex.kernels.RandomSeed import random_seed
from habana_frameworks.torch.hpex.optimizers.SparseAdagrad import SparseAdagrad
from habana_frameworks.torch.hpex.optimizers.SparseSGD import SparseSGD
from habana_frameworks.torch.utils.internal import is_lazy
from in_modes import run
from operator_tensors import LAZY, on_device, random_tensor, random_tensors, rejects

INDICES, OFFSETS = [3, 1, 3, 0, 3], [0, 2, 2, 5]


def int32(*values):
    return [torch.tensor(each, dtype=torch.int32) for each in values]


def assert_near(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def sums(table, indices, offsets):
    bounds = itertools.pairwise(offsets)
    return torch.stack([table[indices[a:b]].double().sum(0) for a, b in bounds])


@LAZY
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bag_is_the_sum_of_its_rows(mode, dtype):
    table = random_tensor(4, 3, dtype=dtype)
    arguments = on_device((table, *int32(INDICES, OFFSETS, [5])))
    actual = EmbeddingBag.forward(*arguments, mode)
    assert (actual.dtype, actual.shape) == (dtype, (3, 3))
    assert_near(actual, sums(table, INDICES, OFFSETS), 1e-5 if dtype is torch.float32 else 1e-2)


@LAZY
def test_mode_0_gathers_one_row_per_index():
    table = random_tensor(4, 3)
    actual = EmbeddingBag.forward(*on_device((table, *int32(INDICES, OFFSETS, [5]))), 0)
    assert torch.equal(actual.cpu(), table[INDICES])


def test_preprocessing_sorts_indices_by_row():
    count, rows, bags, row_offsets = EmbeddingBagPreproc.forward(*int32(INDICES, OFFSETS), 4)
    assert [each.dtype for each in (count, rows, bags, row_offsets)] == [torch.int32] * 4
    assert (count.tolist(), rows[:3].tolist()) == ([3], [0, 1, 3])
    assert (bags.tolist(), row_offsets[:4].tolist()) == ([2, 0, 0, 2, 2], [0, 1, 2, 5])
    assert (rows.shape, row_offsets.shape) == ((5,), (6,))


@pytest.mark.parametrize(
    ("indices", "offsets", "message"),
    [
        ([4], [0, 1], "must be between 0 and 3, but range from 4 to 4."),
        ([1], [0, 2], "must increase from 0 to the number of indices (1), but are [0, 2]."),
        ([1], [], "must increase from 0 to the number of indices (1), but are []."),
    ],
)
def test_invalid_indices_or_offsets_are_rejected(indices, offsets, message):
    with rejects(message, ValueError):
        EmbeddingBagPreproc.forward(*int32(indices, offsets), 4)


@LAZY
@pytest.mark.parametrize("step", [SparseSGD, SparseAdagrad])
def test_optimizer_updates_only_the_used_rows(step):
    table, moments, upstream = random_tensor(4, 3), torch.rand(4, 3), random_tensor(3, 3, seed=1)
    count, rows, bags, row_offsets = EmbeddingBagPreproc.forward(*int32(INDICES, OFFSETS), 4)
    gradients = torch.ones(5, 3)
    arguments = on_device((gradients, upstream, bags, row_offsets, torch.cat([count, count + 1])))
    actual = EmbeddingBag.backward(*arguments, 1)
    exact = torch.ones(5, 3).double()
    exact[:3] += torch.stack([upstream[2], upstream[0], upstream[0] + 2 * upstream[2]]).double()
    assert_near(actual, exact)
    assert torch.equal(arguments[0].cpu(), actual.cpu())  # in place

    weight, moment = on_device((table, moments))
    rate = torch.tensor([0.1]).to("hpu")
    step.forward(arguments[0], weight, moment, rows.to("hpu"), rate, count.to("hpu"))
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
def test_repeated_row_accumulates_momentum_and_gradients():
    weight, moment = torch.zeros(3, 2).to("hpu"), torch.ones(3, 2).to("hpu")
    gradients, (rows, count) = torch.ones(3, 2), int32([1, 1, 0], [2])
    arguments = on_device((gradients, rows, torch.tensor([0.5]), count))
    _hpex_C.sparse_sgd_with_valid_count(
        arguments[0], weight, moment, arguments[1], arguments[2], arguments[3], 0.9, True
    )
    assert moment.tolist() == [[1, 1], [pytest.approx(2.9)] * 2, [1, 1]]
    assert weight.tolist() == [[0, 0], [pytest.approx(-0.5 * (2 + 0.9 * 2.9))] * 2, [0, 0]]


@LAZY
def test_lookup_sums_the_bags_of_each_table():
    first, second = random_tensor(4, 3), random_tensor(2, 3, seed=1)
    weights = torch.cat([first.flatten(), second.flatten()])
    indices, offsets = [3, 1, 3, 0, 1, 1], [0, 2, 3, 4, 6]
    arguments = on_device((weights, torch.tensor([0, 12]), torch.tensor([0, 3, 6])))
    bags = on_device(int32(indices, offsets))
    actual = kernels.split_embedding_codegen_lookup_function(*arguments, 6, *bags, 0)
    expected = [sums(first, indices, offsets[:3]), sums(second, indices, offsets[2:])]
    assert_near(actual, torch.cat(expected, 1))
    one_each = on_device(int32([3, 1, 0, 1], [0, 1, 2, 3, 4]))
    gathered = kernels.split_embedding_codegen_lookup_function(*arguments, 6, *one_each, 0, [0, 1])
    assert torch.equal(gathered.cpu(), torch.cat([first[[3, 1]], second[[0, 1]]], 1))


def test_invalid_lookup_is_rejected_with_the_vendors_message():
    lookup = kernels.split_embedding_codegen_lookup_function
    arguments = torch.ones(12), torch.tensor([0]), torch.tensor([0, 3])
    bags = int32([0], [0, 1])
    with pytest.raises(AssertionError, match=r"^Only PoolingMode\.SUM is supported for HPU$"):
        lookup(*arguments, 3, *bags, 1)
    with pytest.raises(AssertionError, match=r"^total_D \(4\) must match D_offsets\[-1\] \(3\)$"):
        lookup(*arguments, 4, *bags, 0)
    with pytest.raises(AssertionError, match="All tables must have the same number of channels"):
        lookup(*arguments[:2], torch.tensor([0, 1, 3]), 3, *bags, 0)


@LAZY
@pytest.mark.parametrize(
    ("table", "indices", "offsets", "count", "mode", "message"),
    [
        (torch.ones(4), [0], [0, 1], [1], 1, "Input tensor should be 2D"),
        (torch.ones(4, 2), [[0]], [0, 1], [1], 1, "index tensor cannot be more than 1D"),
        (torch.ones(4, 2), [0], [0, 1], [[1]], 1, "valid count tensor should be 1D"),
        (torch.ones(4, 2), [0], [0, 1], [1], 3, "must be 0, 1 or 2, but got 3."),
        (torch.ones(4, 2), [0], [0, 2], [1], 1, "must be between 0 and 1"),
        (torch.ones(4, 2), [4], [0, 1], [1], 1, "index out of range"),
    ],
    ids=["table", "indices", "count", "mode", "offsets", "row"],
)
def test_invalid_bag_is_rejected(table, indices, offsets, count, mode, message):
    arguments = on_device((table, *int32(indices, offsets, count)))
    with rejects(message, RuntimeError, IndexError):
        run(EmbeddingBag.forward, *arguments, mode)


def test_random_seed_is_validated_like_on_a_card():
    with pytest.raises(TypeError, match=r"^Only int32 seed is accepted, got: torch\.int64$"):
        random_seed(torch.tensor([1]))
    with pytest.raises(ValueError, match="HPU RandomSeed is only supported on hpu device"):
        random_seed(*int32([1]))
    (seed,) = on_device(int32([1]))
    if is_lazy():
        assert random_seed(seed).tolist() == [1]
    else:
        with pytest.raises(RuntimeError, match="not supported with new Eager mode"):
            random_seed(seed)


@LAZY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_extended_matmul_has_the_requested_type(dtype):
    a, b, grad = random_tensors((2, 3, 4), (4, 5), (2, 3, 5), dtype=torch.bfloat16)
    arguments = on_device((a, b))
    actual = _hpex_C.matmul_ex(*arguments, dtype)
    of_a, of_b = _hpex_C.matmul_ex_backward(grad.to("hpu"), *arguments, dtype)
    assert {each.dtype for each in (actual, of_a, of_b)} == {dtype}
    tolerance = 1e-5 if dtype is torch.float32 else 1e-2
    assert_near(actual, a.double() @ b.double(), tolerance)
    assert_near(of_a, grad.double() @ b.double().T, tolerance)
    assert_near(of_b, torch.einsum("bmk,bmn->kn", a.double(), grad.double()), tolerance)


def everything(table, indices, offsets, count, out, weight, moment, rate):
    summed = EmbeddingBag.forward(table, indices, offsets, count, 1)
    into = out.clone()
    EmbeddingBag.backward(into, summed, *on_device(int32([0, 1, 0], [0, 2, 2, 3], [3])), 1)
    stepped = weight.clone(), moment.clone()
    SparseAdagrad.forward(into, *stepped, offsets[:3], rate, count)
    return summed, into, *stepped


def operands(rows, seed=0):
    numbers = random_tensors((4, 3), (3, 3), (4, 3), seed=seed)
    bags = int32([3, 1, seed, 0], [0, 2, 3, 4], [2])
    rest = torch.rand(4, 3), torch.tensor([0.1])
    return on_device((numbers[0], *bags, *numbers[1:], *rest))
