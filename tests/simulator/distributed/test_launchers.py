"""Test scripts for several processes, started with torchrun and by spawning."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os
import torch
import torch.distributed as dist
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.distributed.hccl

dist.init_process_group(backend="hccl")
rank = dist.get_rank()
device = torch.device("hpu")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).to(device))
model(torch.full((3, 4), float(rank), device=device)).sum().backward()
htcore.mark_step()
assert model.module.weight.grad.tolist() == [[1.5] * 4] * 2
dist.barrier()
open(f"{os.environ['FOUND']}/{rank}", "w").write(os.environ["HLS_MODULE_ID"])
dist.destroy_process_group()
"""


def run_file(folder, code, launcher=(), **environment):
    path = folder / "program.py"
    path.write_text(code)
    settings = {
        **{name: value for name, value in os.environ.items() if name != "HABANA_VISIBLE_MODULES"},
        "HPU_MAGIC_SIMULATOR": "1",
        **environment,
    }
    command = [sys.executable, *launcher, str(path)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torchrun_assigns_a_visible_card_to_each_rank(tmp_path):
    run_file(
        tmp_path,
        SCRIPT,
        launcher=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        PT_HPU_LAZY_MODE="1",
        FOUND=str(tmp_path),
        TMPDIR=str(tmp_path),  # torchrun leaves a folder behind
        HABANA_VISIBLE_MODULES="5,3",
    )
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["5", "3"]


OWNED = "This process uses HPU {} as hpu:0; start another process to use another card."
CHOICE = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def refused(call):
    try:
        call()
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]

def work(rank, size, way):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "0"
    store = dist.FileStore(os.environ["STORE"], size)
    dist.init_process_group("hccl", rank=rank, world_size=size, store=store)
    name = f"hpu:{rank}"
    if way == "set_device":
        torch.hpu.set_device(rank)
        x = torch.full((2,), rank + 1.0, device="hpu")
    else:
        x = torch.full((2,), rank + 1.0).to(name)
    if way == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(2, 1).to(name), device_ids=[rank])
        model(torch.full((1, 2), float(rank)).to(name)).sum().backward()
        assert model.module.weight.grad.tolist() == [[0.5, 0.5]], model.module.weight.grad
    from hpu_magic.simulator.cards import acquired
    total = torch.ones(2).to(name) + torch.ones(2, device=torch.device("hpu", rank))
    compiled = torch.compile(lambda v: v + torch.ones(2, device=name), backend="hpu_backend")
    assert way == "to" or compiled(total).tolist() == [3.0, 3.0]
    assert str(total.device) == str(x.device) == "hpu:0"
    torch.hpu.synchronize(name)
    assert torch.hpu.get_rng_state(name).numel() == torch.hpu.get_rng_state().numel()
    dist.all_reduce(x)
    other = refused(lambda: torch.zeros(2, device="hpu:3"))
    far = refused(lambda: torch.zeros(2).to("hpu:9"))
    context = refused(lambda: torch.hpu.device(2))
    open(f"{os.environ['STORE']}-{rank}", "w").write("\\n".join(
        [str(acquired().module_id), str(x.tolist()), other, far, context]))
    dist.destroy_process_group()

if __name__ == "__main__":
    way, start = os.environ["WAY"], os.environ["START"]
    mp.start_processes(work, args=(2, way), nprocs=2, start_method=start)
"""


@pytest.mark.parametrize(
    ("way", "visible", "mode", "start"),
    [("to", "5,3", "1", "fork"), ("set_device", "5,3", "0", "fork"), ("ddp", "", "0", "spawn")],
)
def test_first_device_index_selects_the_card_of_a_rank(
    forked_script, tmp_path, way, visible, mode, start
):
    environment = {
        **({"HABANA_VISIBLE_MODULES": visible} if visible else {}),
        "HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards"),
        "PT_HPU_LAZY_MODE": mode,
        "STORE": str(tmp_path / "store"),
        "WAY": way,
        "START": start,
    }
    if start == "fork":
        forked_script(CHOICE, simulated=True, **environment)
    else:
        run_file(tmp_path, CHOICE, **environment)
    modules = list(map(int, visible.split(","))) if visible else list(range(8))
    for rank in range(2):
        module, total, other, far, context = (tmp_path / f"store-{rank}").read_text().splitlines()
        assert (int(module), total) == (modules[rank], "[3.0, 3.0]")
        owned = OWNED.format(module)
        few = f"This process can use hpu:0 to hpu:{len(modules) - 1}."
        assert other == f"habana active device: 0 != 3. {few if visible else owned}"
        assert far == f"habana active device: 0 != 9. {few}"
        assert context == f"Invalid device id 2: {other.replace('!= 3', '!= 2')}"


WAYS = {
    "device=": "torch.full((2,), 2.0, device='hpu:1')",
    "to": "torch.full((2,), 2.0).to(torch.device('hpu', 1))",
    "module": "(torch.nn.Linear(1, 1).to('hpu:1').weight.detach()[0] * 0 + 2)",
    "default device": "[torch.set_default_device('hpu:1'), torch.full((2,), 2.0)][1]",
    "arange": "torch.arange(2, 3, device='hpu:1')",
    "like": "torch.full_like(torch.ones(2), 2.0, device='hpu:1')",
    "set_device": "[torch.hpu.set_device(1), torch.full((2,), 2.0, device='hpu:1')][1]",
    "context": "block(torch.device('hpu:1'))",
    "device context": "block(torch.hpu.device(1), device='hpu')",
    "load": "loaded('hpu:1')",
    "load by a mapping": "loaded({'cpu': 'hpu:1'})",
    "generator": "[torch.Generator('hpu:1'), torch.full((2,), 2.0, device='hpu:1')][1]",
    "random state": "[torch.hpu.get_rng_state('hpu:1'), torch.full((2,), 2.0, device='hpu')][1]",
}
INDEXED = """
import io, torch
from hpu_magic.simulator.cards import acquired

def block(context, **place):
    with context:
        return torch.full((2,), 2.0, **place)

def loaded(place):
    file = io.BytesIO()
    torch.save(torch.full((2,), 2.0), file)
    file.seek(0)
    return torch.load(file, map_location=place)

def refused(call):
    try:
        call()
    except RuntimeError as error:
        return str(error).splitlines()[0]

print(refused(lambda: print({set(x.tolist()) == {2.0} for x in [WAY]}, WAY.device)))
print(acquired() and acquired().module_id, refused(lambda: torch.zeros(1, device="hpu:2")))
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
@pytest.mark.parametrize("way", WAYS)
def test_first_device_index_selects_the_card(forked_script, tmp_path, way, lazy, needs):
    if way == "generator":
        needs("GENERATORS")
    out = forked_script(
        INDEXED.replace("WAY", WAYS[way]),
        HPU_MAGIC_SIMULATOR="1",
        HPU_MAGIC_CARDS_DIR=str(tmp_path),
        PT_HPU_LAZY_MODE=lazy,
    )
    assert out.splitlines() == [
        "{True} hpu:0",
        "None",
        f"1 habana active device: 0 != 2. {OWNED.format(1)}",
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"HABANA_VISIBLE_MODULES": "6,7"}, "7"),
        ({"HLS_MODULE_ID": "1"}, "1"),
        ({"HLS_MODULE_ID": "4", "LOCAL_RANK": "1"}, "4"),
        ({"HLS_MODULE_ID": "4"}, "0 != 1. This process uses HPU 4 as hpu:0;"),
        ({"HABANA_VISIBLE_MODULES": "6"}, "0 != 1. This process can use only hpu:0."),
        ({"HPU_MAGIC_CARDS": "1"}, "0 != 1. This process can use only hpu:0."),
    ],
)
def test_device_index_counts_the_cards_in_the_environment(
    forked_script, tmp_path, settings, expected
):
    out = forked_script(
        INDEXED.replace("WAY", WAYS["to"]),
        HPU_MAGIC_SIMULATOR="1",
        HPU_MAGIC_CARDS_DIR=str(tmp_path),
        **settings,
    )
    first, *rest = out.splitlines()
    if expected.isdigit():
        assert (first, rest[1].split()[0]) == ("{True} hpu:0", expected)
    else:
        assert first.startswith(f"habana active device: {expected}")
