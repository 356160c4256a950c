"""Mismatched collectives fail immediately, before a tensor is written."""

from __future__ import annotations

import functools
import os

import pytest
import torch
import torch.distributed as dist
from ranks import join

# Collectives with tensors of one size, and the text about their root in an error.
NAMES = {
    "all_reduce": "",
    "reduce": " with root 1",
    "broadcast": " with root 1",
    "all_gather": "",
    "all_gather_into_tensor": "",
    "reduce_scatter_tensor": "",
    "gather": " with root 1",
    "scatter": " with root 1",
}


def failing(folder, place, call):
    """Call a function in a new group and return its error message."""
    store = dist.FileStore(f"{folder}/{place}", 2)
    dist.init_process_group("hccl", rank=int(os.environ["RANK"]), world_size=2, store=store)
    try:
        with pytest.raises(dist.DistBackendError) as raised:
            call()
    finally:
        dist.destroy_process_group()
    return str(raised.value)


def with_sizes(folder, sizes):
    """Call collectives with different sizes on the ranks; return each error and tensor."""
    rank = int(os.environ["RANK"])
    mine = sizes[rank]
    found = {}
    for name in NAMES:
        tensor = torch.full((mine,), rank + 1.0, device="hpu")
        parts = [torch.full_like(tensor, 7.0) for _ in range(2)]
        joined = torch.full((2 * mine,), 7.0, device="hpu")
        on_root = parts if rank == 1 else None
        call = {
            "all_reduce": functools.partial(dist.all_reduce, tensor),
            "reduce": functools.partial(dist.reduce, tensor, 1),
            "broadcast": functools.partial(dist.broadcast, tensor, 1),
            "all_gather": functools.partial(dist.all_gather, parts, tensor),
            "all_gather_into_tensor": functools.partial(
                dist.all_gather_into_tensor, joined, tensor
            ),
            "reduce_scatter_tensor": functools.partial(dist.reduce_scatter_tensor, tensor, joined),
            "gather": functools.partial(dist.gather, tensor, on_root, 1),
            "scatter": functools.partial(dist.scatter, tensor, on_root, 1),
        }[name]
        found[name] = failing(folder, name, call), tensor.tolist()
    return found


def sentence(ranks, rank, called):
    """Return the error message of a rank when the two ranks call different collectives."""
    who = [f"rank {each} (process {pid})" for each, pid in enumerate(ranks.pids)]
    return (
        f"{called[rank].split()[0]} number 1 in process group '0' failed on {who[rank]}: this rank "
        f"called {called[rank]}, and {who[1 - rank]} {called[1 - rank]}. Call the same "
        "collective on all ranks, with tensors of the same size and dtype."
    )


@pytest.mark.parametrize("sizes", [(4, 2), (2, 4)], ids=["fewer last", "more last"])
def test_different_sizes_are_reported_by_both_ranks(launch, tmp_path, sizes):
    ranks = launch(2)
    for rank, found in enumerate(ranks(with_sizes, str(tmp_path), sizes)):
        for name, root in NAMES.items():
            called = [f"{name}{root} of {size} elements (Float)" for size in sizes]
            error, written = found[name]
            assert error == sentence(ranks, rank, called)
            own_part = name == "scatter" and rank == 1  # the root copies its part immediately
            assert set(written) <= ({2.0, 7.0} if own_part else {rank + 1.0})


def different_calls(folder):
    rank = int(os.environ["RANK"])
    tensor = torch.ones(4, device="hpu")
    calls = {
        "name": (lambda: dist.all_reduce(tensor), lambda: dist.broadcast(tensor, 0)),
        "root": (lambda: dist.broadcast(tensor, 0), lambda: dist.broadcast(tensor, 1)),
        "type": (lambda: dist.all_reduce(tensor), lambda: dist.all_reduce(tensor.bfloat16())),
    }
    return [failing(folder, kind, call[rank]) for kind, call in calls.items()]


@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_different_collectives_roots_and_dtypes_are_reported(launch, tmp_path, lazy):
    ranks = launch(2, PT_HPU_LAZY_MODE=lazy)
    broadcasts = [f"broadcast with root {root} of 4 elements (Float)" for root in (0, 1)]
    called = [
        ["all_reduce of 4 elements (Float)", broadcasts[0]],
        broadcasts,
        [f"all_reduce of 4 elements ({dtype})" for dtype in ("Float", "BFloat16")],
    ]
    for rank, found in enumerate(ranks(different_calls, str(tmp_path))):
        assert found == [sentence(ranks, rank, each) for each in called]


def one_of_three_differs():
    tensor = torch.ones(4 if dist.get_rank() < 2 else 5, device="hpu")
    with pytest.raises(dist.DistBackendError) as raised:
        dist.all_reduce(tensor)
    return str(raised.value)


def test_all_ranks_report_the_one_that_differs(launch):
    ranks = launch(3)
    ranks(join)
    who = [f"rank {rank} (process {pid})" for rank, pid in enumerate(ranks.pids)]
    first, second, third = ranks(one_of_three_differs)
    assert f"{who[2]} all_reduce of 5 elements (Float). Call the same" in first
    assert f"{who[2]} all_reduce of 5 elements (Float). Call the same" in second
    of_four = [f"{each} all_reduce of 4 elements (Float)" for each in who[:2]]
    assert any(each in third for each in of_four)


def permitted_differences():
    """Call collectives with uneven splits, equivalent names, and an error on one rank."""
    rank = dist.get_rank()
    tensor = torch.full((4,), rank + 1.0, device="hpu")
    if rank == 0:
        with pytest.raises(RuntimeError, match="Unsupported ReduceOp"):
            dist.all_reduce(tensor, dist.ReduceOp.BAND)
    for _ in range(40):  # the root does not wait for the others
        dist.broadcast(tensor, 0)
    rows = torch.arange(4.0, device="hpu")
    uneven = torch.zeros(2 if rank == 0 else 6, device="hpu")
    dist.all_to_all_single(uneven, rows, [1, 1] if rank == 0 else [3, 3], [1, 3])
    gathered = [torch.zeros(4, device="hpu") for _ in range(2)]
    if rank == 0:
        dist.all_gather(gathered, rows)
    else:
        joined = torch.zeros(8, device="hpu")
        dist.all_gather_into_tensor(joined, rows)
        gathered = list(joined.view(2, 4))
    halves = torch.ones(4 if rank == 0 else 2, device="hpu")
    halves = halves.bfloat16() if rank == 0 else halves
    dist.broadcast(halves, 0)  # the same number of bytes
    return tensor.tolist(), uneven.tolist(), [each.tolist() for each in gathered]


def test_permitted_differences_are_not_refused(pair):
    gathered = [[0.0, 1.0, 2.0, 3.0]] * 2
    assert pair(permitted_differences) == [
        ([1.0] * 4, [0.0, 0.0], gathered),
        ([1.0] * 4, [1.0, 2.0, 3.0] * 2, gathered),
    ]


def test_shared_file_is_unlinked_after_the_group_is_created(launch):
    ranks = launch(2)
    ranks(join)
    assert not [name for name in os.listdir(ranks.cards) if name.startswith("announcements")]
