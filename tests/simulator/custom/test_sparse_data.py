"""FBGEMM's functions on indices in segments, against Python's lists."""

import itertools

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch import _hpex_C  # noqa: E402
from habana_frameworks.torch.hpex import kernels  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_replays, run  # noqa: E402

LAZY = pytest.mark.skipif(not is_lazy(), reason="lazy mode's own")
WHOLE = pytest.mark.parametrize("whole", [torch.int32, torch.int64], ids=str)


def on_device(*values, dtype=torch.int32):
    return [torch.tensor(each, dtype=dtype).to("hpu") for each in values]


def segments(values, lengths):
    ends = torch.tensor(lengths).cumsum(0).tolist()
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]


@LAZY
@WHOLE
@pytest.mark.parametrize("weighted", [True, False])
def test_segments_change_places_with_their_weights(weighted, whole):
    permute, lengths = [2, 0, 3, 1], [2, 0, 3, 1]
    indices, weights = [5, 6, 7, 8, 9, 4], [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    given = on_device(permute, lengths, indices, dtype=whole)
    floats = torch.tensor(weights).to("hpu") if weighted else None
    found = kernels.permute_1D_sparse_data(*given, floats)
    moved = [segments(indices, lengths)[i] for i in permute]
    assert [each.dtype for each in found[:2]] == [whole] * 2
    assert found[0].tolist() == [lengths[i] for i in permute]
    assert found[1].tolist() == list(itertools.chain(*moved))
    if weighted:
        assert found[2].tolist() == list(
            itertools.chain(*(segments(weights, lengths)[i] for i in permute))
        )
    else:
        assert found[2] is None


@LAZY
@pytest.mark.parametrize("weighted", [True, False])
def test_whole_tables_of_segments_change_places(weighted):
    permute, lengths = [1, 2, 0], [[2, 1], [0, 3], [1, 1]]
    indices = [10, 11, 12, 20, 21, 22, 30, 31]
    weights = torch.arange(8.0).to("hpu") if weighted else None
    found = kernels.permute_2D_sparse_data(*on_device(permute, lengths, indices), weights)
    assert found[0].tolist() == [[0, 3], [1, 1], [2, 1]]
    assert found[1].tolist() == [20, 21, 22, 30, 31, 10, 11, 12]
    assert found[2] is None if not weighted else found[2].tolist() == [3, 4, 5, 6, 7, 0, 1, 2]


@LAZY
def test_lengths_of_several_dimensions_are_one_list():
    found = kernels.permute_1D_sparse_data(*on_device([3, 2, 1, 0], [[1, 0], [2, 1]], [7, 8, 9, 6]))
    assert found[0].tolist() == [1, 2, 0, 1]
    assert found[1].tolist() == [6, 8, 9, 7]


@LAZY
@WHOLE
def test_a_permutation_is_expanded_to_the_places_of_elements(whole):
    given = on_device([2, 0], [0, 3, 3, 5], [0, 2, 5], dtype=whole)
    found = kernels.expand_into_jagged_permute(*given, 5)
    assert (found.dtype, found.tolist()) == (whole, [3, 4, 0, 1, 2])


@LAZY
@pytest.mark.parametrize("batch", [1, 3])
def test_blocks_of_rows_change_places(batch):
    rows = torch.randn(batch, 6)
    (order,) = on_device([2, 0, 1])
    found = kernels.split_permute_cat(rows.to("hpu"), order, batch, 3, 2)
    assert torch.equal(found.cpu(), rows.reshape(batch, 3, 2)[:, [2, 0, 1]].reshape(batch, 6))


# Two tables of 4 and 2 rows, two bags each: the third index of the first is at fault, and the
# second of the other; so are the first offset and the last.
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
@WHOLE
def test_bounds_are_checked_by_the_mode(mode, indices, offsets, faults, whole):
    rows, given, bounds, warning = on_device(ROWS, INDICES, OFFSETS, [7], dtype=whole)
    assert kernels.bounds_check_indices(rows, given, bounds, mode, warning) is None
    assert (given.tolist(), bounds.tolist()) == (indices, offsets)
    assert warning.tolist() == [faults]


@LAZY
def test_offsets_that_fall_are_mended():
    rows, given, bounds, warning = on_device([9], [1, 2, 3], [0, 3, 1, 3], [0])
    kernels.bounds_check_indices(rows, given, bounds, 1, warning)
    assert (bounds.tolist(), warning.tolist()) == ([0, 3, 3, 3], [1])


REFUSED = {
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
        "must not be negative and add up to the [2] indices",
    ),
    "dimensions": (
        kernels.permute_2D_sparse_data,
        ([0, 1], [1, 1], [5, 6]),
        (),
        "lengths must have shape [tables, batch], but have [2]",
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
        "bounds_check_mode must be 0 (fatal), 1 (warning), 2 (ignore) or 3 (none), but is 4.",
    ),
}


@LAZY
@pytest.mark.parametrize(("function", "tensors", "rest", "said"), REFUSED.values(), ids=REFUSED)
def test_what_the_functions_do_not_take_is_refused(function, tensors, rest, said):
    moved = [each.to("hpu") if isinstance(each, torch.Tensor) else each for each in rest]
    with pytest.raises(RuntimeError) as refused:
        run(function, *on_device(*tensors), *moved)
    assert said in str(refused.value)


@pytest.mark.skipif(is_lazy(), reason="what eager mode refuses")
@pytest.mark.parametrize(
    "name", ["permute_1D_sparse_data", "expand_into_jagged_permute", "bounds_check_indices"]
)
def test_eager_mode_refuses_them(name):
    with pytest.raises(RuntimeError) as refused:
        getattr(_hpex_C, name)()
    said = f"Frontend Op {name}_hpu_wrap not supported with new Eager mode"
    assert str(refused.value) == said


def everything(permute, lengths, indices):
    return (
        *kernels.permute_1D_sparse_data(permute, lengths, indices)[:2],
        kernels.split_permute_cat(indices.reshape(1, -1), permute, 1, 3, 2),
    )


@LAZY
def test_a_replay_orders_what_lies_in_the_captured_inputs():
    assert_replays(
        everything,
        on_device([2, 0, 1], [1, 2, 3], [1, 2, 3, 4, 5, 6]),
        on_device([1, 2, 0], [3, 3, 0], [6, 5, 4, 3, 2, 1]),
    )
