"""Time of collectives between simulated cards, relative to gloo on the CPU.

Each rank alternates between rounds on CPU tensors and rounds on device tensors.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from bench.harness import Figure, in_turn, quiet_ratio
from bench.training import CNN_BATCH, MLP_BATCH, TARGET, cnn, mlp, training_step

LARGE = 64 << 20
MODELS = {"MLP": (mlp, MLP_BATCH, 120), "CNN": (cnn, CNN_BATCH, 60)}


def figures() -> Iterator[Figure]:
    """Yield a figure for each model under DDP, and one for the all-reduce of a large tensor."""
    for name in MODELS:
        value = _on_ranks(2, "ddp", name)
        yield Figure(f"two cards under DDP, {name}: hccl / gloo", value, "ratio", TARGET)
    value = _on_ranks(4, "all_reduce")
    yield Figure("all-reduce of 64 MiB on four cards: hccl / gloo", value, "ratio", TARGET)


def _on_ranks(size: int, *arguments: str) -> float:
    """Run a measurement on several ranks, and return the result of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(Path(folder) / "store"), *arguments],
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(size),
                    "OMP_NUM_THREADS": "1",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if rank else None,
                text=True,
            )
            for rank in range(size)
        ]
        outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(f"A rank failed to measure {arguments[0]}.")
    return float(outputs[0].splitlines()[-1])


def _ddp(name: str) -> float:
    build, batch, rounds = MODELS[name]
    wrap = torch.nn.parallel.DistributedDataParallel
    steps = [training_step(build, batch, device, wrap) for device in ("cpu", "hpu")]
    for _ in range(5):
        for step in steps:
            step()
    return quiet_ratio(in_turn(*steps, rounds, longest=math.inf))


def _all_reduce() -> float:
    runs = []
    for device in ("cpu", "hpu"):
        tensor = torch.ones(LARGE // 4, device=device)

        def run(tensor: torch.Tensor = tensor) -> None:
            dist.all_reduce(tensor)

        runs.append(run)
    return quiet_ratio(in_turn(*runs, 24, longest=math.inf))


def main(store: str, kind: str, *arguments: str) -> None:
    """Run this rank's part of a measurement."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "cpu:gloo,hpu:hccl", rank=rank, world_size=size, store=dist.FileStore(store, size)
    )
    ratio = _ddp(*arguments) if kind == "ddp" else _all_reduce()
    dist.destroy_process_group()
    print(ratio)


if __name__ == "__main__":
    main(*sys.argv[1:])
