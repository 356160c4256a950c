"""Test dry runs of programs whose ranks exchange messages."""

import os
import sys
import textwrap
from pathlib import Path

import pytest

from hpu_magic.dry_runs.process import Processes
from tools.dry_runs import variables_of_ranks

PIPELINE = """
    import sys
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    from torch.distributed.pipelining import ScheduleInterleaved1F1B

    name, depth = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("hccl")
    shape = (depth, dist.get_world_size() // depth)
    mesh = init_device_mesh("hpu", shape, mesh_dim_names=("p", "d"))
    group, rank = mesh.get_group("p"), mesh.get_local_rank("p")
    schedule = globals()[name]
    count = 2 if "Interleaved" in name else 1
    parts = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()).to("hpu") for _ in range(count)]
    replicas = [nn.parallel.DistributedDataParallel(each, process_group=mesh.get_group("d"))
                if mesh.size(1) > 1 else each for each in parts]
    device = torch.device("hpu")
    stages = [PipelineStage(each, rank + depth * part, depth * count, device, group=group)
              for part, each in enumerate(replicas)]
    pipeline = schedule(stages if count > 1 else stages[0], n_microbatches=8,
                        loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD([p for each in parts for p in each.parameters()], lr=0.1)
    for _ in range(40):
        x = torch.ones(64, 512, device="hpu")
        if rank == 0:
            pipeline.step(x)
        elif rank == depth - 1:
            pipeline.step(target=x, losses=[])
        else:
            pipeline.step()
        optimizer.step()
        optimizer.zero_grad()
    print("end")
"""
START = "import torch\nimport torch.distributed as dist\ndist.init_process_group('hccl')\n"
START += "rank = dist.get_rank()\nx = torch.ones(3, device='hpu')\n"


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B"])
def test_steps_of_a_pipeline_repeat(dry, schedule):
    result, output = dry(PIPELINE, schedule, "2", cards=2)
    assert (result.status, output) == (0, "")
    assert result.stopped
    assert [each.rank for each in result.ranks] == [0, 1]
    times = [each.step_seconds for each in result.ranks]
    assert times[0] == pytest.approx(times[1], rel=0.05)
    assert result.time.seconds == max(times)
    assert result.time.phases["other ranks"] > 0


def test_one_rank_of_each_stage_runs(dry):
    result, _ = dry(PIPELINE, "Schedule1F1B", "4", cards=64)
    assert result.status == 0
    assert [each.rank for each in result.ranks] == [0, 16, 32, 48]
    assert result.cards == 64
    text = str(result)
    assert "Ranks 0, 16, 32 and 48 exchanged messages, and represent all 64 ranks." in text
    assert result.to_dict()["ranks"][3]["peak"] == result.ranks[3].peak > 0


def test_one_rank_of_each_stage_of_a_deepspeed_pipeline_runs(dry):
    program = Path(__file__).parent / "programs_of_ranks" / "deepspeed_pipeline.py"
    result, _ = dry(program.read_text(), "untied", cards=16)
    assert (result.status, [each.rank for each in result.ranks]) == (0, [0, 4, 8, 12])
    activations = 4 * 32 * 64 * 4
    assert result.time.sent["send"] == 8 * activations
    assert result.time.phases["other ranks"] > 0


def test_bubbles_get_smaller_with_more_microbatches(dry):
    few, many = (
        dry(PIPELINE.replace("n_microbatches=8", f"n_microbatches={count}"),
            "ScheduleGPipe", "2", cards=2)[0].time
        for count in (2, 16)
    )  # fmt: skip
    assert few.limits["other ranks"] / few.seconds > many.limits["other ranks"] / many.seconds


def test_message_arrives_after_it_was_sent(dry):
    _, output = dry(
        START
        + textwrap.dedent(
            """
            from hpu_magic.simulator import card_time
            y = torch.ones(4096, 4096, device="hpu")
            if rank == 0:
                for _ in range(10):
                    y = y @ y
                print("sent", card_time.read().card)
                dist.send(y, 1)
            else:
                dist.recv(y, 0)
                print("received", card_time.read().card)
            """
        ),
        cards=2,
    )
    times = {name: float(seconds) for name, seconds in map(str.split, output.splitlines())}
    rate = 4 * 4096**2 / (times["received"] - times["sent"])
    assert 1e9 < rate < 1e12  # bytes per second


def test_time_equals_the_card_time_of_real_processes(dry, tmp_path):
    code = textwrap.dedent(PIPELINE).replace("range(40)", "range(3)")
    code += "from hpu_magic.simulator import card_time\nprint(rank, card_time.read().end)\n"
    _, output = dry(code, "Schedule1F1B", "2", cards=2, whole=True)
    variables = {"HPU_MAGIC_SIMULATOR": "1", "HPU_MAGIC_CARD_TIME": "1"}
    variables |= {"HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards")}
    command = [sys.executable, str(tmp_path / "train.py"), "Schedule1F1B", "2"]
    with (tmp_path / "real.txt").open("wb") as real:
        ranks = [
            Processes.create(command, env={**os.environ, **variables, **own}, stdout=real)
            for own in variables_of_ranks(2)
        ]
        assert [each.wait(120) for each in ranks] == [0, 0]
    assert _times(output) == pytest.approx(_times((tmp_path / "real.txt").read_text()), rel=1e-6)


def _times(output):
    lines = [line.split() for line in output.splitlines() if line != "end"]
    return {rank: float(seconds) for rank, seconds in lines}


@pytest.mark.parametrize("backend", ["hccl", "gloo"])
def test_integers_and_objects_have_the_values_of_the_sender(dry, backend):
    device = "hpu" if backend == "hccl" else "cpu"
    _, output = dry(
        f"""
        import torch
        import torch.distributed as dist
        dist.init_process_group({backend!r})
        rank = dist.get_rank()
        objects = [{{"shape": (rank, 2)}}]
        if rank == 0:
            dist.send_object_list(objects, dst=2)
            dist.send(torch.tensor([5, 6], device="{device}"), 2, tag=1)
        else:
            dist.recv_object_list(objects, src=0)
            sizes = torch.zeros(2, dtype=torch.long, device="{device}")
            assert dist.recv(sizes, 0, tag=1) == 0
            print(rank, objects, sizes.tolist())
        names = [f"run of rank {{rank}}"]
        dist.broadcast_object_list(names, src=0)
        if rank:
            print(names)
        """,
        cards=4,
    )
    assert output.splitlines() == ["2 [{'shape': (0, 2)}] [5, 6]", "['run of rank 0']"]


def test_values_that_were_not_computed_are_not_sent(dry):
    result, output = dry(
        START
        + textwrap.dedent(
            """
            if rank == 0:
                dist.send(torch.randn(3, device="hpu").argmax().reshape(1), 1)
            else:
                y = torch.full((1,), 7, device="hpu")
                dist.recv(y, 0)
                print(y.item())
            """
        ),
        cards=2,
    )
    assert output == "0\n"
    assert len(result.stand_ins) == 1


def test_spawned_ranks_exchange_messages(new_processes, dry):
    result, output = dry(
        """
        import torch
        import torch.distributed as dist
        def train(rank, size):
            dist.init_process_group("hccl", "tcp://127.0.0.1:29511", rank=rank, world_size=size)
            x = torch.full((1,), rank, device="hpu")
            if rank == 0:
                dist.send(x + 4, 3)
            elif rank == 3:
                dist.recv(x, 0)
                print(rank, x.item())
        if __name__ == "__main__":
            torch.multiprocessing.spawn(train, args=(4,), nprocs=4)
        """
    )
    assert (output, result.cards, [each.rank for each in result.ranks]) == ("3 4\n", 4, [0, 3])


def test_card_of_another_rank_is_full(dry, monkeypatch, capfd):
    monkeypatch.setenv("HPU_MAGIC_MEMORY", "1GiB")
    result, _ = dry(
        START
        + textwrap.dedent(
            """
            if rank == 0:
                dist.send(x, 1)
            else:
                y = torch.empty(1 << 30, device="hpu")
            dist.recv(x, 1 - rank)
            """
        ),
        cards=2,
    )
    assert result.status == 1
    assert "it runs out of memory" in result.title()
    assert (result.rank, result.shortage.line.line) == (1, 10)
    assert [each.out_of_memory for each in result.ranks] == [False, True]
    assert capfd.readouterr().err.count("Traceback") == 1


def test_error_of_another_rank_ends_the_run(dry, capfd):
    result, _ = dry(
        START
        + textwrap.dedent(
            """
            if rank == 0:
                dist.recv(x, 1)
            raise ValueError("no data")
            """
        ),
        cards=2,
    )
    assert "It ended on rank 1 in train.py:9 with ValueError: no data." in str(result)
    assert capfd.readouterr().err.count("Traceback") == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "dist.recv(x, 1 - rank)",
            "No rank can continue: rank 0 waits in train.py:6 until rank 1 sends a message, and "
            "rank 1 waits in train.py:6 until rank 0 sends a message.",
        ),
        (
            "dist.send(x, 1 - rank)",
            "No rank can continue: rank 0 waits in train.py:6 until rank 1 receives a message, and "
            "rank 1 waits in train.py:6 until rank 0 receives a message.",
        ),
        (
            "if rank == 0: dist.recv(x, 1)",
            "Rank 1 has ended, but rank 0 waits in train.py:6 until rank 1 sends a message.",
        ),
        (
            "dist.send(x[:2], 1) if rank == 0 else dist.recv(x, 0)",
            "Rank 0 sent 8 bytes, but rank 1 receives 12 bytes: send and receive tensors of the "
            "same size and dtype.",
        ),
    ],
)
def test_messages_that_do_not_match_are_an_error(dry, code, message):
    result, _ = dry(START + code, cards=2)
    assert result.error == f"RankError: {message}"
    assert result.error_line.place == "train.py:6"


def test_rank_is_not_started_without_memory_of_this_machine(dry, monkeypatch):
    import psutil

    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=1 << 28))
    result, _ = dry(START + "dist.send(x, 1)", cards=2)
    assert "Rank 1 cannot be started: 256 MiB of this machine's memory are free" in result.error


def test_killed_rank_is_an_error(dry):
    from hpu_magic.dry_runs.run import UnfinishedError

    code = "import os\nif rank == 0: dist.send(x, 1)\nelse: os.kill(os.getpid(), 9)\n"
    with pytest.raises(UnfinishedError, match=r"^rank 1 of .*train.py was ended by the operating"):
        dry(START + code, cards=2)
