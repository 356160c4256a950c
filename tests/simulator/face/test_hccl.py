"""Test the backend hccl in one process, and the environment variables of launchers."""

import json

import pytest

COLLECTIVES = """
import json
import torch
import torch.distributed as dist
import habana_frameworks.torch.core

found = {}
dist.init_process_group("hccl", rank=0, world_size=1, store=dist.HashStore())
found["backend"] = dist.get_backend()
tensor = torch.arange(4.0, device="hpu")
dist.all_reduce(tensor)
dist.broadcast(tensor, 0)
dist.reduce(tensor, 0, op=dist.ReduceOp.MAX)
found["in place"] = tensor.tolist()
for name, call in {
    "all_gather": lambda tensor, output: dist.all_gather([output], tensor),
    "gather": lambda tensor, output: dist.gather(tensor, [output], dst=0),
    "scatter": lambda tensor, output: dist.scatter(output, [tensor], src=0),
    "reduce_scatter": lambda tensor, output: dist.reduce_scatter(output, [tensor]),
    "reduce_scatter_tensor": lambda tensor, output: dist.reduce_scatter_tensor(output, tensor),
    "all_gather_into_tensor": lambda tensor, output: dist.all_gather_into_tensor(output, tensor),
    "all_to_all_single": lambda tensor, output: dist.all_to_all_single(output, tensor),
    "all_to_all": lambda tensor, output: dist.all_to_all([output], [tensor]),
}.items():
    output = torch.zeros(4, device="hpu")
    call(tensor, output)
    tensor.add_(1)
    found[name] = output.tolist()
dist.barrier()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2).to("hpu")
parallel = torch.nn.parallel.DistributedDataParallel(model)
parallel(torch.ones(3, 4, device="hpu")).sum().backward()
found["gradient"] = model.weight.grad.tolist()
dist.destroy_process_group()
print(json.dumps(found))
"""


@pytest.mark.parametrize("mode", ["0", "1"])
def test_group_of_one_process_runs_collectives(forked_script, mode):
    out = forked_script(COLLECTIVES, simulated=True, PT_HPU_LAZY_MODE=mode)
    found = json.loads(out.splitlines()[-1])
    assert found.pop("backend") == "hccl"
    assert found.pop("in place") == [0, 1, 2, 3]
    assert found.pop("gradient") == [[3.0] * 4] * 2
    first = [0, 1, 2, 3]
    assert list(found.values()) == [[each + step for each in first] for step in range(8)]


LAUNCH = """
import json, os
import torch
from habana_frameworks.torch.distributed.hccl import initialize_distributed_hpu
names = ("HLS_MODULE_ID", "ID", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
print(json.dumps([initialize_distributed_hpu(), [os.environ.get(name) for name in names]]))
"""
NONE = [None] * 6


@pytest.mark.parametrize(
    ("environment", "who", "variables"),
    [
        ({}, [1, -1, -1], NONE),
        (
            {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"},
            [4, 3, 1],
            ["1", "3", None, None, "4", "3"],
        ),
        (
            {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "HABANA_VISIBLE_MODULES": "6,7"},
            [4, 3, 1],
            ["7", "3", None, None, "4", "3"],
        ),
        (
            {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "HLS_MODULE_ID": "5"},
            [4, 3, 1],
            ["5", "3", None, None, "4", "3"],
        ),
        (
            {
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "MASTER_PORT": "4000",
            },
            [2, 1, 0],
            ["0", "1", "localhost", "4000", "2", "1"],
        ),
        ({"RANK": "0"}, [1, 0, -1], [None, "0", None, None, None, "0"]),
    ],
)
def test_process_has_the_rank_of_its_launcher(forked_script, environment, who, variables):
    out = forked_script(LAUNCH, simulated=True, **environment)
    assert json.loads(out.splitlines()[-1]) == [who, variables]


def test_more_processes_than_cards_are_refused(forked_script):
    code = """
    import torch
    from habana_frameworks.torch.distributed.hccl import initialize_distributed_hpu
    try:
        initialize_distributed_hpu(3, 2, 2)
    except AssertionError as error:
        print(error)
    print(initialize_distributed_hpu(3, 1, 1))
    """
    refusal, who = forked_script(code, simulated=True, HABANA_VISIBLE_MODULES="0,4").splitlines()
    assert refusal.startswith("There is not enough devices available for training")
    assert who == "(3, 1, 1)"


def test_invalid_list_of_modules_is_refused(forked_script):
    code = """
    import torch
    from habana_frameworks.torch.hpu import _utils
    print(_utils._get_module_id_from_environ())
    try:
        _utils._get_available_modules_from_environ()
    except AssertionError as error:
        print(error)
    """
    number, refusal = forked_script(
        code, simulated=True, HABANA_VISIBLE_MODULES="0,x", HLS_MODULE_ID="3"
    ).splitlines()
    assert number == "3"
    assert refusal.startswith("HABANA_VISIBLE_MODULES does not have valid value.")


def memory_limit(forked_script, **environment):
    code = """
    import torch
    try:
        print(torch.hpu.memory_stats()["Limit"])
    except ValueError as error:
        print(error)
    """
    return forked_script(code, simulated=True, HPU_MAGIC_MEMORY="1GiB", **environment).strip()


@pytest.mark.parametrize(
    ("world_size", "allowance", "limit"),
    [("1", "100", 1 << 30), ("2", "100", (1 << 30) - (100 << 20)), ("2", "4096", 0)],
)
def test_memory_is_reserved_for_collectives_of_processes(
    forked_script, world_size, allowance, limit
):
    found = memory_limit(
        forked_script, WORLD_SIZE=world_size, PT_HCCL_MEMORY_ALLOWANCE_MB=allowance
    )
    assert int(found.splitlines()[-1]) == limit


def test_invalid_allowance_is_refused(forked_script):
    found = memory_limit(forked_script, WORLD_SIZE="2", PT_HCCL_MEMORY_ALLOWANCE_MB="much")
    assert "PT_HCCL_MEMORY_ALLOWANCE_MB='much' is not a size" in found


END_OF_PYTHON = """
import atexit, ctypes, json, os, sys, time

hold, release = os.pipe()
# Runs after all other handlers, with the GIL, until the other end of the pipe is closed. Then
# Python ends, and threads that wait for the GIL receive it.
atexit.register(ctypes.PyDLL(None).read, hold, ctypes.create_string_buffer(1), 1)

import torch
import torch.distributed as dist

class Sleeper:
    def __del__(self, sleep=time.sleep):
        sleep(0.1)  # while other threads may hold the GIL

deleted_with_the_module = Sleeper()

def run(rank):
    global kept
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    import hpu_magic.simulator

    hpu_magic.simulator.activate(announce=False)
    import habana_frameworks.torch.distributed.hccl

    dist.init_process_group("hccl", rank=rank, world_size=2, init_method=os.environ["STORE"])
    kept = torch.ones(4, device="hpu")
    dist.barrier()
    if rank == 0:
        dist.all_reduce(kept, async_op=True)
    else:
        time.sleep(0.3)  # until rank 0 is about to end
        dist.all_reduce(kept)
        dist.destroy_process_group()

left, leave = os.pipe()
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        os.close(release)
        if rank == 0:
            os.close(leave)
        run(rank)
        if rank == 1:
            os.close(leave)
        sys.exit()
os.close(leave)
os.read(left, 1)
time.sleep(0.4)  # until threads that outlive a group by 0.2 s have released it
os.close(release)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]))
"""


def test_python_ends_while_threads_of_a_group_release_the_gil(script, tmp_path):
    """Rank 0 ends during a collective, and rank 1 ends immediately after it leaves its group."""
    # Not simulated=True, which adds a handler that runs after the script's handler.
    out = script(END_OF_PYTHON, TORCH_DEVICE_BACKEND_AUTOLOAD="0", STORE=f"file://{tmp_path}/store")
    assert json.loads(out.splitlines()[-1]) == [0, 0]
