"""Test the time of steps and the bytes that they send in dry runs on several cards."""

import subprocess
import textwrap

import pytest

from hpu_magic.dry_runs.run import Request, dry_run
from hpu_magic.estimates.cost.constants import FITTED
from tools.card_times import LARGEST, compared, table


@pytest.mark.parametrize(
    ("step", "cards"),
    [("MLP, DDP", 8), ("MLP, DDP", 64), ("GPT-2, DDP", 64), ("MLP, FSDP", 8), ("MLP, FSDP", 64)],
)
def test_time_of_a_step_equals_the_estimate(step, cards):
    times = compared(step, cards)
    assert abs(times.difference) < LARGEST
    assert times.sent > 0


@pytest.mark.parametrize("mode", ["lazy", "graphs", "compile"])
def test_graphs_and_copies_of_ddp_are_those_of_the_estimate(mode):
    step = "CNN, DDP" if mode == "compile" else "MLP, DDP"
    assert abs(compared(step, 8, mode).difference) < LARGEST


def test_collectives_of_deepspeed_take_the_time_of_an_exchange(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, torch
            __name__ = sys.argv[1]
            torch.distributed.init_process_group("hccl")
            part, whole = (torch.ones(size, device="hpu") for size in (2**22, 2**25))
            for _ in range(8):
                torch.distributed.all_gather_into_tensor(whole, part)
                torch.distributed.reduce_scatter_tensor(part, whole)
            """
        )
    )

    def seconds(module):
        result = dry_run(Request(str(script), [module], cards=8), output=subprocess.DEVNULL)
        return result.time.phases["exchange"]

    zero = seconds("deepspeed.runtime.zero.partition_parameters")
    assert zero / seconds("train") == pytest.approx(FITTED.exchange["zero3"], rel=0.05)


def test_compiled_update_of_sharded_weights_is_one_graph(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch
            from torch import nn
            from torch.distributed.fsdp import fully_shard
            torch.distributed.init_process_group("hccl")
            model = nn.Linear(1024, 1024, device="hpu")
            fully_shard(model)
            optimizer = torch.optim.AdamW(model.parameters())
            update = torch.compile(optimizer.step, backend="hpu_backend")
            for _ in range(4):
                model(torch.ones(8, 1024, device="hpu")).sum().backward()
                update()
                optimizer.zero_grad()
            """
        )
    )
    result = dry_run(Request(str(script), cards=8), output=subprocess.DEVNULL)
    # In eager mode, the update would be limited by launches.
    assert result.time.phases["optimizer"] < FITTED.launch_seconds


@pytest.mark.parametrize(
    ("step", "mode"),
    [
        ("MLP, tensor parallel", "eager"),
        ("MLP, tensor parallel", "lazy"),
        ("MLP, tensor parallel", "graphs"),
        ("ViT-base, replicas", "graphs"),
    ],
)
def test_time_of_inference_equals_the_estimate(step, mode):
    times = compared(step, 8, mode, training=False)
    assert abs(times.difference) < LARGEST
    # Each of eight layers has a result in bf16, most of which a card sends twice.
    results = 8 * 4096 * 8192 * 2 if step.endswith("tensor parallel") else 0
    assert times.sent == 2 * results * 7 / 8


def test_page_lists_each_mode():
    assert table().listed() == [
        f"{kind}, {mode}, 8 cards"
        for kind in ("training", "inference")
        for mode in ("eager", "lazy", "graphs", "compile")
    ]


def test_report_lists_the_bytes_of_each_kind_of_collective(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch
            from torch import nn
            from torch.distributed.fsdp import fully_shard
            torch.distributed.init_process_group("hccl")
            model = nn.Linear(1024, 1024, bias=False, device="hpu")
            fully_shard(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(9):
                loss = model(torch.ones(8, 1024, device="hpu")).sum()
                torch.distributed.all_reduce(loss.detach().clone())
                loss.backward()
                optimizer.step()
            """
        )
    )
    request = Request(str(script), cards=8)
    result = dry_run(request, output=subprocess.DEVNULL)
    weight = 4 * 1024 * 1024
    assert result.time.sent == {"all_gather": weight * 7 / 8, "reduce_scatter": weight * 7 / 8} | {
        "all_reduce": 2 * 4 * 7 / 8
    }
    assert "7.00 MiB per card" in str(result)
    assert result.time.phases["exchange"] > 0
