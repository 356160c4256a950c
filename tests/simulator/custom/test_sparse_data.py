"""Test FBGEMM functions for sparse indices in segments against Python lists."""

import itertools

import pytest
import torch
from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch.hpex import kernels
from in_modes import run
from operator_tensors import EAGER, LAZY, on_device, rejects

INTEGERS = pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)


def integers(*values, dtype=torch.int32):
    return [torch.tensor(each, dtype=dtype).to("hpu") for each in values]


def segments(values, lengths):
    ends = torch.tensor(lengths).cumsum(0).tolist()
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]


@LAZY
@INTEGERS
@pytest.mark.parametrize("weighted", [True, False])
def test_permutation_moves_segments_and_their_weights(weighted, dtype):
    permute, lengths = [2, 0, 3, 1], [2, 0, 3, 1]
    indices, weights = [5, 6, 7, 8, 9, 4], [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    arguments = integers(permute, lengths, indices, dtype=dtype)
    floats = torch.tensor(weights).to("hpu") if weighted else None
    actual = kernels.permute_1D_sparse_data(*arguments, floats)
    moved = [segments(indices, lengths)[i] for i in permute]
    assert [each.dtype for each in actual[:2]] == [dtype] * 2
    assert actual[0].tolist() == [lengths[i] for i in permute]
    assert actual[1].tolist() == list(itertools.chain(*moved))
    if weighted:
        assert actual[2].tolist() == list(
            itertools.chain(*(segments(weights, lengths)[i] for i in permute))
        )
    else:
        assert actual[2] is None


@LAZY
@pytest.mark.parametrize("weighted", [True, False])
def test_permutation_moves_tables(weighted):
    permute, lengths = [1, 2, 0], [[2, 1], [0, 3], [1, 1]]
    indices = [10, 11, 12, 20, 21, 22, 30, 31]
    weights = torch.arange(8.0).to("hpu") if weighted else None
    actual = kernels.permute_2D_sparse_data(*integers(permute, lengths, indices), weights)
    assert actual[0].tolist() == [[0, 3], [1, 1], [2, 1]]
    assert actual[1].tolist() == [20, 21, 22, 30, 31, 10, 11, 12]
    assert actual[2] is None if not weighted else actual[2].tolist() == [3, 4, 5, 6, 7, 0, 1, 2]


@LAZY
def test_lengths_are_flattened():
    actual = kernels.permute_1D_sparse_data(*integers([3, 2, 1, 0], [[1, 0], [2, 1]], [7, 8, 9, 6]))
    assert actual[0].tolist() == [1, 2, 0, 1]
    assert actual[1].tolist() == [6, 8, 9, 7]


@LAZY
@INTEGERS
def test_segment_permutation_is_expanded_to_elements(dtype):
    arguments = integers([2, 0], [0, 3, 3, 5], [0, 2, 5], dtype=dtype)
    actual = kernels.expand_into_jagged_permute(*arguments, 5)
    assert (actual.dtype, actual.tolist()) == (dtype, [3, 4, 0, 1, 2])


@LAZY
@pytest.mark.parametrize("batch", [1, 3])
def test_permutation_moves_blocks_of_columns(batch):
    rows = torch.randn(batch, 6)
    (order,) = integers([2, 0, 1])
    actual = kernels.split_permute_cat(rows.to("hpu"), order, batch, 3, 2)
    assert torch.equal(actual.cpu(), rows.reshape(batch, 3, 2)[:, [2, 0, 1]].reshape(batch, 6))


# Two tables of 4 and 2 rows with two bags each. The third and the last index are out of range, as
# are the first and the last offset.
ROWS, INDICES, OFFSETS = [4, 2], [3, 0, 4, 1, 2], [1, 1, 3, 4, 9]


@LAZY
@pytest.mark.parametrize(
    ("mode", "indices", "offsets", "faults"),
    [
        (0, [3, 0, -1, 1, -1], [-1, 1, 3, 4, -1], 7),
        (1, [3, 0, 0, 1, 0], [0, 1, 3, 4, 5], 7 + 2 + 2),
        (2, [3, 0, 0, 1, 0], [0, 1, 3, 4, 5], 7),
        (3, INDICES, OFFSETS, 7),
    ],
    ids=["fatal", "warning", "ignore", "none"],
)
@INTEGERS
def test_bounds_are_checked_according_to_the_mode(mode, indices, offsets, faults, dtype):
    rows, elements, bounds, warning = integers(ROWS, INDICES, OFFSETS, [7], dtype=dtype)
    assert kernels.bounds_check_indices(rows, elements, bounds, mode, warning) is None
    assert (elements.tolist(), bounds.tolist()) == (indices, offsets)
    assert warning.tolist() == [faults]


@LAZY
def test_decreasing_offsets_are_corrected():
    rows, elements, bounds, warning = integers([9], [1, 2, 3], [0, 3, 1, 3], [0])
    kernels.bounds_check_indices(rows, elements, bounds, 1, warning)
    assert (bounds.tolist(), warning.tolist()) == ([0, 3, 3, 3], [1])


INVALID = {
    "twice": (
        kernels.permute_1D_sparse_data,
        ([0, 0], [1, 1], [5, 6]),
        (),
        "permute must contain each number from 0 to 1 once",
    ),
    "lengths": (
        kernels.permute_1D_sparse_data,
        ([0, 1], [1, 2], [5, 6]),
        (),
        "must not be negative and must add up to the [2] indices",
    ),
    "dimensions": (
        kernels.permute_2D_sparse_data,
        ([0, 1], [1, 1], [5, 6]),
        (),
        "lengths must have shape [tables, batch], but got [2]",
    ),
    "size": (
        kernels.expand_into_jagged_permute,
        ([0], [0, 2], [0, 2]),
        (3,),
        "The segments in permute have 2 elements, but output_size is 3.",
    ),
    "offsets": (
        kernels.expand_into_jagged_permute,
        ([0, 1], [0, 2, 1], [0, 2]),
        (1,),
        "offsets must not decrease",
    ),
    "mode": (
        kernels.bounds_check_indices,
        ([9], [1], [0, 1]),
        (4, torch.zeros(1).int()),
        "bounds_check_mode must be 0 (fatal), 1 (warning), 2 (ignore) or 3 (none), but got 4.",
    ),
}


@LAZY
@pytest.mark.parametrize(("function", "tensors", "rest", "message"), INVALID.values(), ids=INVALID)
def test_invalid_call_is_rejected(function, tensors, rest, message):
    with rejects(message):
        run(function, *integers(*tensors), *on_device(rest))


@EAGER
@pytest.mark.parametrize(
    "name", ["permute_1D_sparse_data", "expand_into_jagged_permute", "bounds_check_indices"]
)
def test_functions_are_not_supported_in_eager_mode(name):
    with pytest.raises(RuntimeError) as error:
        getattr(_hpex_C, name)()
    message = f"Frontend Op {name}_hpu_wrap not supported with new Eager mode"
    assert str(error.value) == message


def everything(permute, lengths, indices):
    return (
        *kernels.permute_1D_sparse_data(permute, lengths, indices)[:2],
        kernels.split_permute_cat(indices.reshape(1, -1), permute, 1, 3, 2),
    )


def operands(rows, seed=0):
    order, lengths = ([2, 0, 1], [1, 2, 3]) if seed == 0 else ([1, 2, 0], [3, 3, 0])
    return integers(order, lengths, [6 * seed + i for i in range(6)])
