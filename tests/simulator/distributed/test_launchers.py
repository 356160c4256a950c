"""Scripts for several processes, started as everybody starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

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


def test_torchrun(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(path)]
    settings = {
        **os.environ,
        "HPU_MAGIC_SIMULATOR": "1",
        "PT_HPU_LAZY_MODE": "1",
        "FOUND": str(tmp_path),
        "HABANA_VISIBLE_MODULES": "5,3",
    }
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["5", "3"]


SPAWNED = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "0"
    store = dist.FileStore(os.environ["STORE"], size)
    dist.init_process_group("hccl", rank=rank, world_size=size, store=store)
    tensor = torch.full((2,), float(rank + 1), device="hpu")
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    assert tensor.tolist() == [3.0, 3.0]

if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
    print("both have ended well")
"""


def test_spawn(tmp_path):
    path = tmp_path / "spawned.py"
    path.write_text(textwrap.dedent(SPAWNED))
    settings = {**os.environ, "HPU_MAGIC_SIMULATOR": "1", "STORE": str(tmp_path / "store")}
    command = [sys.executable, str(path)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("both have ended well\n")
