"""Test collectives of hccl against gloo on the CPU, and operations that HCCL rejects."""

from __future__ import annotations

import datetime
import gc
import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from collective_calls import check
from ranks import join


def test_random_collectives_equal_gloo(pair):
    pair(check, 0, 70)


def test_random_collectives_of_four_ranks_equal_gloo(four):
    four(check, 1000, 30)


def collectives_of_one_tensor():
    rank = dist.get_rank()
    mine = torch.arange(4.0, device="hpu") + 10 * rank
    gathered = torch.zeros(8, device="hpu")
    dist.all_gather_into_tensor(gathered, mine)
    rows = torch.zeros(2, 4, device="hpu")
    dist.all_gather_into_tensor(rows, mine)
    scattered = torch.zeros(2, device="hpu")
    dist.reduce_scatter_tensor(scattered, mine)
    largest = torch.zeros(2, device="hpu", dtype=torch.bfloat16)
    dist.reduce_scatter_tensor(largest, mine.bfloat16(), dist.ReduceOp.MAX)
    exchanged = torch.zeros(4, device="hpu")
    dist.all_to_all_single(exchanged, mine)
    uneven = torch.zeros(2 if rank == 0 else 6, 1, device="hpu")
    dist.all_to_all_single(uneven, mine[:, None], [1, 1] if rank == 0 else [3, 3], [1, 3])
    half = torch.zeros(2, dtype=torch.int32, device="hpu")
    dist.reduce_scatter_tensor(half, mine.int())
    return [each.tolist() for each in (gathered, rows, scattered, largest, exchanged, uneven, half)]


def test_single_tensor_collectives(pair):
    first, second = pair(collectives_of_one_tensor)
    both = [0.0, 1, 2, 3, 10, 11, 12, 13]
    assert first[0] == second[0] == both
    assert first[1] == [both[:4], both[4:]]
    assert (first[2], second[2]) == ([10, 12], [14, 16])
    assert (first[3], second[3]) == ([10, 11], [12, 13])
    assert (first[4], second[4]) == ([0, 1, 10, 11], [2, 3, 12, 13])
    assert first[5] == [[0], [10]]
    assert second[5] == [[1], [2], [3], [11], [12], [13]]
    assert (first[6], second[6]) == ([10, 12], [14, 16])


def reductions_of_other_dtypes():
    large = torch.tensor([2**24 + 1, 3], device="hpu")
    dist.all_reduce(large)
    either = torch.tensor([dist.get_rank() == 0, False], device="hpu")
    dist.all_reduce(either)
    both = torch.tensor([dist.get_rank() == 0, True], device="hpu")
    dist.all_reduce(both, dist.ReduceOp.PRODUCT)
    fp8 = torch.full((3,), 200.0, device="hpu").to(torch.float8_e4m3fn)
    dist.all_reduce(fp8)
    complexes = torch.tensor([1 + 2j], device="hpu")
    dist.all_reduce(complexes)
    return [each.tolist() for each in (large, either, both, fp8.float(), complexes)]


def test_other_dtypes_are_reduced_in_float32(pair):
    """Integers are rounded to float32, and FP8 values are clamped to the card's range."""
    for found in pair(reductions_of_other_dtypes):
        assert found == [[2**25, 6], [True, False], [False, True], [240.0] * 3, [2 + 4j]]


def reductions_beyond_int32():
    results = []
    for operation in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
        large = torch.tensor([2**31 - 1, -(2**31), 2**30], device="hpu")
        dist.all_reduce(large, operation)
        results.append(large.tolist())
    return results


def test_int64_results_have_the_cards_width(pair, request):
    expected = [[2**32, -(2**32), 2**31], [2**31, -(2**31), 2**30]]
    if "lazy" in request.node.name:
        expected = [[0, 0, -(2**31)], [-(2**31), -(2**31), 2**30]]
    assert pair(reductions_beyond_int32) == [expected, expected]


def coalesced_collectives():
    rank = dist.get_rank()
    tensors = [torch.full((n,), float(rank + n), device="hpu") for n in (1, 3)]
    with dist._coalescing_manager(device=torch.device("hpu")):
        for tensor in tensors:
            dist.all_reduce(tensor)
    outputs = [torch.zeros(2 * n, device="hpu") for n in (1, 3)]
    with dist._coalescing_manager(device=torch.device("hpu"), async_ops=True) as manager:
        for output, tensor in zip(outputs, tensors, strict=True):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    scattered = [torch.zeros(n, device="hpu") for n in (1, 3)]
    with dist._coalescing_manager(device=torch.device("hpu")):
        for output, tensor in zip(scattered, outputs, strict=True):
            dist.reduce_scatter_tensor(output, tensor)
    sent, received = torch.full((2,), float(rank), device="hpu"), torch.zeros(2, device="hpu")
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    )
    for work in works:
        work.wait()
    return [each.tolist() for each in (*tensors, *outputs, *scattered, received)]


def collectives_of_tensor_lists():
    import torch.distributed._functional_collectives as functional

    rank = dist.get_rank()

    def made():
        return [
            torch.full((3,), rank + 1.0, device="hpu"),
            torch.full((2, 2), 10.0 * (rank + 1), device="hpu"),
        ]

    summed, largest, later, plain = made(), made(), made(), made()
    dist.all_reduce_coalesced(summed)
    dist.all_reduce_coalesced(largest, op=dist.ReduceOp.MAX)
    dist.all_reduce_coalesced(later, async_op=True).wait()
    backend = dist.group.WORLD._get_backend(torch.device("hpu"))
    backend.allreduce(plain, dist.AllreduceOptions()).wait()
    found = {"sum": summed, "max": largest, "later": later, "backend": plain}
    world = dist.group.WORLD
    found["functional sum"] = functional.all_reduce_coalesced(made(), "sum", world)
    found["gathered"] = functional.all_gather_into_tensor_coalesced(made(), world)
    found["scattered"] = functional.reduce_scatter_tensor_coalesced(
        [torch.ones(2, device="hpu"), torch.ones(4, device="hpu")], "sum", [0, 0], world
    )
    shared = made()
    dist._broadcast_coalesced(world, shared, 1 << 20, 1)
    found["broadcast"] = shared
    return {name: [one.flatten().tolist() for one in each] for name, each in found.items()}


def test_tensor_lists_are_reduced_gathered_and_broadcast(pair):
    summed = [[3.0] * 3, [30.0] * 4]
    for found in pair(collectives_of_tensor_lists):
        assert found == {
            "sum": summed,
            "max": [[2.0] * 3, [20.0] * 4],
            "later": summed,
            "backend": summed,
            "functional sum": summed,
            "gathered": [[1.0] * 3 + [2.0] * 3, [10.0] * 4 + [20.0] * 4],
            "scattered": [[2.0], [2.0, 2.0]],
            "broadcast": [[2.0] * 3, [20.0] * 4],
        }


def test_coalesced_collectives_return_all_results(pair):
    found = pair(coalesced_collectives)
    for rank in range(2):
        assert found[rank] == [[3], [7] * 3, [3] * 2, [7] * 6, [6], [14] * 3, [1 - rank] * 2]


def collectives_of_objects():
    rank = dist.get_rank()
    gathered = [None, None]
    dist.all_gather_object(gathered, {"rank": rank})
    shared = [{"from": 0}, "x"] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, src=0, device=torch.device("hpu"))
    mine = [None]
    dist.scatter_object_list(mine, ["first", "second"] if rank == 0 else None, src=0)
    return gathered, shared, mine


def test_objects_are_gathered_broadcast_and_scattered(pair):
    for rank, found in enumerate(pair(collectives_of_objects)):
        expected = ["first", "second"][rank : rank + 1]
        assert found == ([{"rank": 0}, {"rank": 1}], [{"from": 0}, "x"], expected)


def refused_operations():
    tensor = torch.ones(4, device="hpu")
    other = 1 - dist.get_rank()
    group = dist.group.WORLD

    def refused(function, *args, **named):
        with pytest.raises(RuntimeError) as error:
            function(*args, **named)
        return str(error.value).splitlines()[0]

    return [
        *(
            refused(dist.all_reduce, tensor, getattr(dist.ReduceOp, name))
            for name in ("AVG", "BAND", "BOR", "BXOR")
        ),
        refused(dist.all_reduce, tensor > 0, dist.ReduceOp.AVG),
        refused(dist.reduce_scatter_tensor, tensor[:2], tensor, dist.ReduceOp.AVG),
        refused(dist.recv, tensor),
        refused(group.allgather_coalesced, [[tensor, tensor]], [tensor]),
        refused(dist.all_gather_into_tensor, tensor, tensor),
        refused(group._get_backend(torch.device("hpu")).send, [tensor], dist.get_rank(), 0),
        refused(group._get_backend(torch.device("hpu")).allreduce, [torch.ones(2)]),
        refused(dist.all_to_all_single, tensor[:3], tensor[:3]),
        refused(dist.isend, torch.ones(2).to_sparse(), other),
    ]


def test_operations_that_hccl_lacks_are_refused(pair):
    for rank, found in enumerate(pair(refused_operations)):
        assert found[:6] == [
            *(["Unsupported ReduceOp for HCCL process group: use SUM, PRODUCT, MIN or MAX."] * 4),
            "Cannot use ReduceOp.AVG with boolean inputs",
            "Unsupported ReduceOp for HCCL process group: use SUM, PRODUCT, MIN or MAX.",
        ]
        assert found[6] == "HCCL cannot receive from an arbitrary source; specify the source rank."
        assert found[7].startswith("HCCL does not support allgather_coalesced")
        assert "the larger of which has the elements of all 2 ranks" in found[8]
        assert f"rank {rank} specified {rank}" in found[9]
        assert found[10].startswith("hccl requires dense tensors in device memory")
        assert found[11].startswith("Tensor's dim 0 does not divide equally")


def asynchronous_collectives():
    rank = dist.get_rank()
    tensor = torch.ones(1 << 20, device="hpu")
    works = [dist.all_reduce(tensor * (i + 1), async_op=True) for i in range(4)]
    results = [work.get_future().wait()[0] for work in works]
    sums = [result[-1].item() for result in results]
    assert all(work.is_completed() and work.is_success() for work in works)
    assert works[0].result()[0].device.type == "hpu"

    then = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = then.then(lambda future: future.value()[0] * 2)
    sums.append(doubled.wait()[0].item())

    waited = torch.zeros(2, device="hpu")
    if rank == 0:
        received = dist.irecv(waited, 1)
        assert not received.is_completed()
        dist.barrier()
        received.wait()
        sums.append(waited[0].item())
    else:
        dist.barrier()
        dist.send(torch.full((2,), 5.0, device="hpu"), 0)
    return sums


@pytest.mark.parametrize("repetition", [0, 1])
def test_work_completes_with_its_collective(pair, repetition):
    first, second = pair(asynchronous_collectives)
    assert first == [2, 4, 6, 8, 4, 5]
    assert second == [2, 4, 6, 8, 4]


def synchronized_collectives():
    rank = dist.get_rank()
    tensor = torch.full((1 << 22,), float(rank + 1), device="hpu")
    work = dist.all_reduce(tensor, async_op=True)
    torch.hpu.synchronize()
    assert work.is_completed()
    unreferenced = torch.ones(1 << 20, device="hpu")
    dist.all_reduce(unreferenced, async_op=True)
    del unreferenced
    gc.collect()
    torch.hpu.synchronize()
    return tensor[-1].item()


def test_synchronize_waits_for_collectives(pair):
    assert pair(synchronized_collectives) == [3.0, 3.0]


def kernels_around_collectives():
    """Write tensors with kernels immediately before and after collectives."""
    rank = dist.get_rank()
    found = []
    for _ in range(3):
        tensor = torch.arange(6.0, device="hpu") * (rank + 1)
        dist.all_reduce(tensor)
        tensor.add_(1)
        other = torch.empty(12, device="hpu")
        dist.all_gather_into_tensor(other, tensor * 2)
        found.append((other + 1).tolist())
    return found


def test_recorded_operations_run_before_a_collective(pair):
    row = [6.0 * i + 3 for i in range(6)]
    assert pair(kernels_around_collectives) == [[row + row] * 3] * 2


def memory_of_collectives():
    def reduced(dtype):
        tensor = torch.ones(1 << 18, dtype=dtype, device="hpu")
        torch.hpu.synchronize()
        torch.hpu.reset_peak_memory_stats()  # to 0
        before = torch.hpu.memory_allocated()
        dist.all_reduce(tensor)
        return max(torch.hpu.max_memory_allocated() - before, 0)

    def in_use():
        until = time.monotonic() + 60
        while (now := torch.hpu.memory_allocated()) > before and time.monotonic() < until:
            time.sleep(0.01)  # the transport's thread frees its tensors after the work has ended
        return now

    torch.hpu.synchronize()
    before = torch.hpu.memory_allocated()
    found = [reduced(dtype) for dtype in (torch.float32, torch.bfloat16, torch.int32)]
    return found, in_use() - before


def test_collective_allocates_memory_only_for_conversions(pair):
    for found in pair(memory_of_collectives):
        assert found == ([0, 0, 1 << 20], 0)


def reductions_in_threads():
    """Reduce in two threads, each with its own group."""
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    sums = [0.0, 0.0]

    def work(i):
        tensor = torch.full((1000,), float(i + 1), device="hpu")
        for _ in range(20):
            dist.all_reduce(tensor, group=groups[i])
            tensor.div_(2)
        sums[i] = tensor.sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups:
        dist.destroy_process_group(group)
    return sums


def test_threads_can_use_separate_groups(pair):
    assert pair(reductions_in_threads) == [[1000.0, 2000.0]] * 2


def barriers_with_device_ids():
    rank = dist.get_rank()
    own = torch.distributed.distributed_c10d.barrier
    found = [dist.barrier(device_ids=[rank]), own(None, False, [rank])]
    work = dist.barrier(async_op=True, device_ids=[rank])
    found.append(work.wait(datetime.timedelta(seconds=60)))
    for wrong in ([], rank):
        try:
            dist.barrier(device_ids=wrong)
        except (IndexError, TypeError, RuntimeError) as error:
            found.append(type(error).__name__)
        else:
            found.append(None)
    return found


def test_barrier_accepts_the_local_rank_as_device_id(pair):
    for *found, empty, number in pair(barriers_with_device_ids):
        assert found == [None, None, True]
        # PyTorch 2.6 requires a list, which can be empty.
        assert (empty, number) in [("IndexError", None), (None, "TypeError")]


def subgroups():
    rank = dist.get_rank()
    found = [dist.get_backend(dist.new_group(backend="hccl"))]
    pairs = [dist.new_group([0, 3], backend="hccl"), dist.new_group([1, 2], backend="hccl")]
    mine = pairs[0 if rank in (0, 3) else 1]
    tensor = torch.full((3,), float(rank), device="hpu")
    dist.all_reduce(tensor, group=mine)
    found.append(tensor.tolist())
    message = torch.full((1,), float(rank), device="hpu")
    dist.broadcast(message, src=3 if rank in (0, 3) else 1, group=mine)
    found.append(message.item())
    dist.barrier(group=mine)
    split, _ = dist.new_subgroups(2)
    dist.all_reduce(tensor, group=split)
    found.append(tensor[0].item())
    for group in (*pairs, split):
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    return found


def test_subgroups_reduce_and_broadcast(four):
    found = four(subgroups)
    assert found == [["hccl", [3.0] * 3, 3.0 if rank in (0, 3) else 1.0, 6.0] for rank in range(4)]


def interrupted_wait():
    import signal

    rank = dist.get_rank()
    tensor = torch.ones(4, device="hpu")
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            work.wait()
        dist.barrier(group=dist.new_group([0]))  # other groups continue
        store = dist.distributed_c10d._get_default_store()
        store.set("interrupted", "yes")
        work.wait()
    else:
        dist.new_group([0])
        dist.distributed_c10d._get_default_store().wait(["interrupted"])
        dist.all_reduce(tensor)
    return tensor.tolist()


def test_interrupt_ends_the_wait_but_not_the_collective(launch):
    ranks = launch(2)
    ranks(join)
    assert ranks(interrupted_wait) == [[2.0] * 4] * 2


def captured_collective():
    graph = torch.hpu.HPUGraph()
    tensor = torch.ones(2, device="hpu")
    with pytest.raises(RuntimeError, match="cannot be captured"), torch.hpu.graph(graph):
        dist.all_reduce(tensor)


def test_collectives_cannot_be_captured(pair, request):
    if "eager" in request.node.name:
        pytest.skip("eager mode has no captures")
    pair(captured_collective)


def groups_by_arguments(folder):
    """Create groups with the arguments that users pass."""
    found = []
    for name, options in {
        "by name": {"backend": "hccl"},
        "by device": {"backend": "hpu:hccl"},
        "default": {},
        "watched": {"backend": "cpu:gloo,hpu:hccl"},
    }.items():
        dist.set_debug_level(dist.DebugLevel.DETAIL if name == "watched" else dist.DebugLevel.OFF)
        store = dist.FileStore(f"{folder}/{name}", 2)
        rank = int(os.environ["RANK"])
        dist.init_process_group(rank=rank, world_size=2, store=store, **options)
        tensor = torch.ones(2, device="hpu")
        dist.all_reduce(tensor)
        dist.barrier()
        group = dist.new_group([0, 1])
        dist.broadcast(tensor, 0, group=group)
        gathered = [None, None]
        dist.all_gather_object(gathered, rank)
        assert gathered == [0, 1], (name, gathered)
        assert dist.get_world_size(group) == 2
        assert dist.distributed_c10d._get_default_group().rank() == rank
        found.append((dist.get_backend(), tensor.tolist()))
        dist.destroy_process_group()
    dist.set_debug_level(dist.DebugLevel.OFF)
    return found


def test_process_groups_are_created_with_common_arguments(launch, tmp_path):
    for found in launch(2)(groups_by_arguments, str(tmp_path)):
        assert [tensor for _, tensor in found] == [[2.0, 2.0]] * 4
        assert found[0][0] == "hccl"


def group_with_a_device(folder):
    store = dist.FileStore(f"{folder}/bound", 2)
    rank = int(os.environ["RANK"])
    device = torch.device("hpu", 0)
    dist.init_process_group("hccl", rank=rank, world_size=2, store=store, device_id=device)
    tensor = torch.ones(2, device="hpu")
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, group=dist.new_group([0, 1]))
    bound = dist.distributed_c10d._get_default_group().bound_device_id
    dist.destroy_process_group()
    return dist.is_initialized(), bound == device, tensor.tolist()


def test_process_group_can_be_bound_to_a_device(launch, tmp_path):
    assert launch(2)(group_with_a_device, str(tmp_path)) == [(False, True, [4.0, 4.0])] * 2
