"""Test the command hpu-magic dry-run."""

import gc
import json
import subprocess
import sys

import pytest

from hpu_magic import command_line
from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run
from hpu_magic.errors import HPUError

LOOP = """
import sys
import torch
from torch import nn
size = int(sys.argv[1])
model = nn.Linear(size, size, bias=False, device="hpu")
optimizer = torch.optim.Adam(model.parameters())
for step in range(20):
    loss = model(torch.ones(2, size, device="hpu")).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
print("end")
"""


WORLD = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("cpu:gloo,hpu:hccl")
whole = torch.empty(64 * 3, device="hpu")
dist.all_gather_into_tensor(whole, torch.ones(3, device="hpu"))
count = torch.tensor(5)
dist.all_reduce(count)
counts = torch.tensor([7, 8]).to("hpu")
dist.all_reduce(counts)
print(dist.get_rank(), dist.get_world_size())
print(os.environ["LOCAL_WORLD_SIZE"], torch.hpu.device_count())
print(count.item(), counts.tolist(), whole.sum().item())
"""


def test_run_ends_when_the_steps_repeat(dry):
    result, output = dry(LOOP, "8")
    assert result.stopped
    assert result.cycle == 1
    assert result.steps < 8
    assert "end" not in output
    assert f"the run ended after step {result.steps}" in str(result)


def test_requested_number_of_steps(dry):
    result, output = dry(LOOP, "8", steps=2)
    assert (result.steps, result.stopped) == (2, True)
    assert output.count("loss") == 1


def test_whole_script(dry):
    result, output = dry(LOOP, "8", whole=True)
    assert (result.steps, result.stopped, result.error) == (20, False, None)
    assert output.endswith("end\n")


def test_memory_by_kind_and_line(dry):
    result, _ = dry(LOOP, "4096")
    matrix = 4096 * 4096 * 4
    assert result.composition["parameters"] == matrix
    assert result.composition["gradients"] == matrix
    assert result.composition["optimizer state"] == 2 * matrix
    assert sum(result.composition.values()) == result.peak
    assert sum(line.bytes for line in result.memory_lines) == result.peak
    [model] = [line for line in result.memory_lines if line.text.startswith("model =")]
    assert (model.place, model.bytes) == ("train.py:6", matrix)


def test_steps_on_the_cpu_are_not_counted(dry):
    result, _ = dry(
        """
        import torch
        for device in ("cpu", "hpu"):
            model = torch.nn.Linear(64, 64, device=device)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(20):
                model(torch.ones(8, 64, device=device)).sum().backward()
                optimizer.step()
        """
    )
    assert (result.cycle, result.stopped, result.warnings()) == (1, True, [])
    assert 3 <= result.steps < 20
    assert result.peak > 0


def test_error_of_cuda_code_names_the_flag(dry):
    result, _ = dry("import torch\ntorch.ones(1).to('cuda')")
    (warning,) = result.warnings()
    assert "set PT_HPU_GPU_MIGRATION=1" in warning


def test_kinds_of_tensors_that_existed_before_the_device_was_loaded(
    new_processes, dry, monkeypatch
):
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    result, _ = dry(
        """
        import torch
        model = torch.nn.BatchNorm1d(1024, affine=False, track_running_stats=True)
        import habana_frameworks.torch
        model.to("hpu")
        """
    )
    assert result.composition["buffers"] >= 2 * 1024 * 4


def test_model_that_is_larger_than_this_machine_runs_out_of_memory_in_a_line(dry):
    result, _ = dry(LOOP, "150000", card="gaudi3")
    matrix = 150000 * 150000 * 4
    assert result.out_of_memory
    assert result.status == 1
    assert (result.shortage.line.place, result.shortage.bytes) == ("train.py:10", matrix)
    assert result.shortage.missing == 2 * matrix + 2 * 2 * 150000 * 4 + 8 - (128 << 30)
    assert "GiB too much" in str(result)


def test_stand_ins_are_listed_with_their_line_and_can_be_replaced(dry):
    result, output = dry(LOOP, "8", steps=3)
    [line] = result.stand_ins
    assert (line.place, line.text, line.count) == ("train.py:13", 'print("loss", loss.item())', 2)
    assert output == "loss 1.0\n" * 2
    result, output = dry(LOOP, "8", steps=3, values=["train.py:13=0.25", "rain.py:13=1"])
    assert output == "loss 0.25\n" * 2
    assert result.unused_values == ["rain.py:13=1"]
    [warning] = result.warnings()
    assert "--value rain.py:13=1 had no effect" in warning
    assert "these lines did: train.py:13" in warning


def test_integers_and_masks_of_host_data_are_computed(dry):
    result, output = dry(
        """
        import torch
        lengths = torch.tensor([3, 1, 4]).to("hpu")
        mask = torch.arange(5, device="hpu") < lengths[:, None]
        x = torch.randn(3, 5, 2, device="hpu")
        print(mask.sum().item(), x[mask].shape, x.masked_select(mask[..., None]).shape)
        print(lengths.argmax().item(), lengths.cumsum(0).tolist(), mask.nonzero().shape)
        print((lengths * 2).max().item(), torch.tensor(0.5).to("hpu").item())
        """
    )
    assert output.splitlines() == [
        "8 torch.Size([8, 2]) torch.Size([16])",
        "2 [3, 4, 8] torch.Size([8, 2])",
        "8 0.5",
    ]
    assert result.stand_ins == []
    assert result.assumed_shapes == []


def test_sizes_that_depend_on_values_are_assumed(dry):
    result, output = dry(
        """
        import torch
        x = torch.randn(6, 4, device="hpu")
        print(x[x > 0].shape, (x > 0).nonzero().shape)
        print(x.argmax(1).unique(return_counts=True)[1].shape, x.argmax(1).bincount().shape)
        experts = torch.nn.functional.one_hot(x.argmax(1), 4)
        print(torch.where(experts[:, 1])[0].shape)
        """
    )
    assert output.splitlines() == [
        "torch.Size([24]) torch.Size([24, 2])",
        "torch.Size([6]) torch.Size([1])",
        "torch.Size([2])",
    ]
    assert {line.place for line in result.assumed_shapes} == {f"train.py:{n}" for n in (4, 5, 7)}
    assert "Sizes that depend on such values are assumed" in str(result)


def test_size_without_a_rule_is_an_error_with_its_line(dry):
    result, _ = dry(
        """
        import torch
        x = torch.randn(6, device="hpu")
        torch.repeat_interleave(x, x.long())
        """
    )
    assert result.status == 1
    assert "aten::repeat_interleave" in result.error
    assert "the size of its result depends on values" in str(result)


def test_operator_without_a_meta_kernel_is_an_error_with_its_line(dry):
    result, _ = dry(
        """
        import torch
        library = torch.library.Library("mine", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CPU")
        torch.ops.mine.twice(torch.ones(2, device="hpu"))
        """
    )
    assert "mine::twice has no meta kernel" in result.error
    assert "It ended in train.py:6 with" in str(result)


def test_error_after_a_stand_in_says_how_to_supply_its_value(dry):
    result, _ = dry(
        """
        import torch
        names = {2: "cat", 3: "dog"}
        print(names[torch.randn(1, 4, device="hpu").argmax(1).item()])
        """
    )
    assert result.warnings() == [
        "It ended in train.py:4 with KeyError: 0. If a stand-in caused this error, pass the value "
        "that its line should read: --value train.py:4=NUMBER."
    ]


def test_conditions_on_the_loss_continue(dry):
    _, output = dry(
        """
        import torch
        loss = torch.randn(3, device="hpu").exp().sum()
        print(bool(loss.isnan()), bool(loss.isinf()), bool(loss.isfinite()), bool(loss < 0))
        print(torch.isnan(torch.randn(5, device="hpu")).any().item())
        """
    )
    assert output.splitlines() == ["False False True False", "False"]


def test_error_of_the_script_is_reported(dry, capfd):
    result, _ = dry("import torch\ntorch.ones(2, 3, device='hpu') @ torch.ones(2, device='hpu')\n")
    assert result.status == 1
    assert "size mismatch" in result.error
    assert not result.out_of_memory
    error = capfd.readouterr().err
    assert "Traceback" in error
    assert "runpy" not in error


def test_json_is_alone_on_the_standard_output(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch; print('own'); torch.ones(3, device='hpu')\n")
    command = [sys.executable, "-m", "hpu_magic.command_line", "dry-run", "--json", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["peak"] == 12
    assert done.stderr == "own\n"


def test_one_rank_represents_all(dry):
    result, output = dry(WORLD, cards=64, nodes=16)
    assert output.splitlines() == ["0 64", "4 4", "5 [7, 8] 192.0"]
    assert "on 64 simulated GAUDI2" in result.title()
    assert "Rank 0 ran and represents all 64 ranks." in str(result)


@pytest.mark.parametrize(
    ("variable", "value"), [("HPU_MAGIC_CARD_TIME", "yes"), ("HPU_MAGIC_MEMORY", "much")]
)
def test_invalid_variable_is_reported_in_one_sentence(dry, monkeypatch, variable, value, capfd):
    monkeypatch.setenv(variable, value)
    with pytest.raises(HPUError, match=f"^{variable}='{value}' is not"):
        dry("")
    assert capfd.readouterr().err == ""


def test_time_of_a_step_equals_the_card_time_on_the_simulator(dry, forked_script, monkeypatch):
    code = """
    import torch
    from hpu_magic.simulator import card_time
    model = torch.nn.Linear(1024, 1024, device="hpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(512, 1024, device="hpu")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(card_time.read().card)
    """
    real = forked_script(code, simulated=True, HPU_MAGIC_CARD_TIME="1")
    monkeypatch.setenv("HPU_MAGIC_CARD_TIME", "0")
    result, output = dry(code, whole=True)
    assert float(output) == pytest.approx(float(real), rel=1e-9)
    assert 0 < result.step_seconds < float(real)
    assert "(estimate; " in str(result)


@pytest.mark.parametrize(("cards", "nodes", "expected"), [(1, None, "1"), (4, 2, "2")])
def test_script_sees_the_cards_of_one_machine(dry, cards, nodes, expected):
    code = "import torch; print(torch.hpu.device_count())"
    _, output = dry(code, cards=cards, nodes=nodes)
    assert output.strip() == expected


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_small_tensors_from_the_host_are_compared_by_their_values(dry, monkeypatch, lazy):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    result, output = dry(
        """
        import torch
        y = torch.tensor([[1.0, -2.0], [float("nan"), 3.0]]).to("hpu")
        print((y == y).tolist(), torch.isnan(y).any().item(), (y > 0).sum().item())
        y.fill_(2.0)
        print(torch.isnan(y).any().item(), (y > 1).tolist())
        y.add_(torch.randn(2, 2, device="hpu"))
        print((y > 1).any().item())
        """
    )
    assert output.splitlines() == [
        "[[True, True], [False, True]] True 2",
        "False [[True, True], [True, True]]",
        "False",
    ]
    assert [each.what for each in result.stand_ins] == ["aten::_local_scalar_dense"]


@pytest.mark.parametrize(
    ("message", "shown"),
    [("", "ImportError."), ("\n\n no module x.\nmore", "ImportError: no module x.")],
)
def test_warning_shows_the_first_line_of_an_error(dry, message, shown):
    result, _ = dry(f"raise ImportError({message!r})")
    assert result.warnings() == [f"It ended in train.py:1 with {shown}"]


def test_script_collects_garbage_as_usual(dry):
    _, output = dry("import torch, gc; print(gc.get_threshold(), gc.isenabled())")
    assert output == f"{gc.get_threshold()} True\n"


def test_exit_status_is_that_of_the_script(dry):
    result, _ = dry("import sys; sys.exit(7)")
    assert (result.status, result.error) == (7, None)
    assert "it ended with status 7." in result.title()


CUDA_CODE = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(8, 64, device=device)).sum().backward()
    optimizer.step()
"""


def test_cuda_code_uses_the_card_only_with_migration(dry, monkeypatch):
    result, _ = dry(CUDA_CODE)
    assert "it did not use the card." in result.title()
    assert (result.peak, result.time) == (0, None)
    (warning,) = result.warnings()
    assert "set PT_HPU_GPU_MIGRATION=1" in warning
    monkeypatch.setenv("PT_HPU_GPU_MIGRATION", "1")
    result, _ = dry(CUDA_CODE)
    assert "it fits." in result.title()
    assert result.peak > 2 * 64 * 65 * 4
    assert result.step_seconds > 0
    assert not result.warnings()


FABRIC = """
import torch
from lightning import Fabric
fabric = Fabric(devices=1)
model = torch.nn.Linear(64, 64)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(3):
    fabric.backward(model(torch.ones(8, 64, device=fabric.device)).sum())
    optimizer.step()
"""


def test_lightning_without_the_accelerator_is_explained(dry, monkeypatch):
    result, _ = dry(FABRIC)
    (warning,) = result.warnings()
    assert warning.endswith("Lightning uses HPUs if the script imports hpu_magic.lightning.")
    result, _ = dry(f"import hpu_magic.lightning\n{FABRIC}")
    assert (result.steps, result.warnings()) == (3, [])
    monkeypatch.setenv("PT_HPU_GPU_MIGRATION", "1")
    result, _ = dry(FABRIC)
    (warning,) = result.warnings()
    assert warning.endswith("imports hpu_magic.lightning, also without PT_HPU_GPU_MIGRATION.")


def test_sharded_parameters_are_parameters(dry):
    result, _ = dry(
        """
        import torch
        from torch.distributed.fsdp import fully_shard
        torch.distributed.init_process_group("hccl")
        model = torch.nn.Linear(64, 64, bias=False, device="hpu")
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            model(torch.ones(8, 64, device="hpu")).sum().backward()
            optimizer.step()
        """,
        cards=8,
        whole=True,
    )
    shard = 64 * 64 * 4 // 8
    found = {kind: result.composition[kind] for kind in ("parameters", "optimizer state")}
    assert found == {"parameters": shard, "optimizer state": shard}


@pytest.mark.parametrize("url", ["env://", "tcp://127.0.0.1:29511"])
def test_spawned_rank_0_represents_all_ranks(dry, url):
    result, output = dry(
        f"""
        import torch
        import torch.distributed as dist
        def train(rank, size):
            dist.init_process_group("hccl", {url!r}, rank=rank, world_size=size)
            whole = torch.empty(size * 1000, device="hpu")
            dist.all_gather_into_tensor(whole, torch.ones(1000, device="hpu"))
            print(rank, dist.get_world_size())
        if __name__ == "__main__":
            torch.multiprocessing.spawn(train, args=(4,), nprocs=4)
            print("end")
        """
    )
    assert output == "0 4\nend\n"
    assert (result.cards, result.peak) == (4, 4 * 4000 + 4000)


def test_process_group_without_ranks_is_an_error(dry):
    result, _ = dry("import torch; torch.distributed.init_process_group('hccl')")
    assert "but RANK is not set: pass --cards N" in result.error


def test_pipeline_with_more_stages_than_ranks_is_an_error(dry):
    result, _ = dry(
        """
        import torch
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
        torch.distributed.init_process_group("hccl")
        layer = torch.nn.Linear(8, 8, device="hpu")
        stage = PipelineStage(layer, 0, num_stages=8, device=torch.device("hpu"))
        ScheduleGPipe(stage, n_microbatches=4)
        """,
        cards=4,
    )
    assert "The pipeline has 8 stages, but only 4 ranks: pass --cards 8" in result.error
    assert result.error_line.place == "train.py:7"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("missing.py"), "'missing.py' is not a file"),
        (Request("hpu-magic"), r"a Python script, such as \S+/hpu-magic\."),
        (Request(), "either a script or code"),
        (Request(__file__, push={"x": 1}), "pass arguments to the script"),
        (Request(__file__, card="gaudi33"), "Unknown card 'gaudi33': did you mean 'gaudi3'"),
        (Request(__file__, host="slow"), "Unknown host 'slow': use ideal or measured."),
        (Request(__file__, steps=0), "at least 1, got 0"),
        (Request(__file__, trace="/missing/trace.json"), "The folder of '/missing/trace.json'"),
        (Request(__file__, cards=0), "at least 1, got 0"),
        (Request(__file__, cards=9, nodes=2), "9 cards cannot be divided among 2 machines"),
        (Request(__file__, cards=64, nodes=4), "at most 8 cards each"),
        (Request(__file__, values=["42=1"]), "'42=1' is not a valid value"),
        (Request(__file__, values=["a.py:4=x"]), "'a.py:4=x' is not a valid value"),
    ],
)
def test_invalid_request(request_, message):
    with pytest.raises(HPUError, match=message):
        dry_run(request_)


def test_unknown_card(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["dry-run", "--card", "gaudi9", "train.py"])
    assert "invalid choice: 'gaudi9'" in capsys.readouterr().err


def test_page_has_the_result(tmp_path, capfd):
    script, page = tmp_path / "train.py", tmp_path / "page.html"
    script.write_text("import torch; torch.ones(3, device='hpu')\n")
    assert command_line.main(["dry-run", "--html", str(page), str(script)]) == 0
    assert "it fits" in capfd.readouterr().out
    assert "peak memory" in page.read_text()
    assert command_line.main(["dry-run", "--html", "/missing/page.html", str(script)]) == 1
    assert "The folder of '/missing/page.html' does not exist" in capfd.readouterr().err
