"""Train one of the measured models; a program for dry runs.

Usage: hpu-magic dry-run [--cards N] tools/calibration/program.py MODEL [OPTION...]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from calibration import models

STEPS = 4


def options() -> argparse.Namespace:
    """Return the command-line options, which are named like the tables' columns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=models.FAMILIES)
    parser.add_argument("--batch", type=int, default=1, help="samples per card and pass")
    parser.add_argument("--tokens", type=int, default=512, help="tokens per sample, or pixels")
    parser.add_argument("--dtype", choices=("bf16", "bf16-mixed"), default="bf16")
    parser.add_argument("--parallel", default="ddp", help="ddp, fsdp, or zero1 to zero3")
    parser.add_argument("--accumulate", type=int, default=1, help="passes per step")
    parser.add_argument("--recomputed", choices=("none", "full"), default="none")
    parser.add_argument("--trained", default="full", help="full, or adapters such as lora8:q,v")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def built(job: argparse.Namespace) -> nn.Module:
    """Return the model on the card."""
    model = models.built(job.model, attention="eager", device="hpu")
    if job.trained != "full":
        models.train_adapters(model, job.trained)
    if job.dtype == "bf16":
        model.to(torch.bfloat16)
    if job.recomputed == "full":
        enable: Any = model.gradient_checkpointing_enable
        enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def shared(model: nn.Module, parallel: str) -> nn.Module:
    """Return the model wrapped in DDP or sharded with FSDP."""
    if parallel == "ddp":
        # Estimates of measured jobs assume these options, see `measurements.BUCKETS`.
        return nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=100, gradient_as_bucket_view=True
        )
    from torch.distributed.fsdp import fully_shard

    layers = [
        layer for each in model.modules() if isinstance(each, nn.ModuleList) for layer in each
    ]
    for part in (*layers, model):
        fully_shard(part)
    return model


def optimizer_of(model: nn.Module, job: argparse.Namespace) -> torch.optim.Optimizer:
    """Return the optimizer of the measured job; the vendor's does not support DTensors."""
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    wanted = [each for each in model.parameters() if each.requires_grad]
    if job.model == "resnet-50":
        return torch.optim.SGD(wanted, lr=1e-3)
    chosen = torch.optim.AdamW if job.parallel == "fsdp" else FusedAdamW
    return chosen(wanted, lr=1e-3)


def train(job: argparse.Namespace) -> None:
    """Train for a few steps with PyTorch."""
    from habana_frameworks.torch.core import mark_step

    model = built(job)
    if torch.distributed.is_initialized():
        model = shared(model, job.parallel)
    optimizer = optimizer_of(model, job)
    if job.compile:
        model = torch.compile(model, backend="hpu_backend")  # type: ignore[assignment]
    mixed = job.dtype == "bf16-mixed"
    inputs = inputs_of(job)
    for _ in range(STEPS):
        for last in passes(job.accumulate):
            with waiting(model, last), torch.autocast("hpu", torch.bfloat16, enabled=mixed):
                loss = model(**inputs)["loss"]
            with waiting(model, last):
                loss.backward()
            mark_step()
        optimizer.step()
        optimizer.zero_grad()
        mark_step()


def passes(count: int) -> Iterator[bool]:
    """Yield for each pass of a step whether it is the last one."""
    yield from (number == count - 1 for number in range(count))


def waiting(model: nn.Module, last: bool) -> Any:
    """Return a context in which DDP exchanges gradients only after the last pass."""
    is_ddp = isinstance(model, nn.parallel.DistributedDataParallel)
    return model.no_sync() if is_ddp and not last else nullcontext()


def inputs_of(job: argparse.Namespace) -> dict[str, Any]:
    """Return the inputs of a pass on the card."""
    return {
        name: torch.zeros(each.shape, dtype=each.dtype, device="hpu")
        if isinstance(each, torch.Tensor)
        else each
        for name, each in models.inputs(job.model, job.batch, job.tokens).items()
    }


def train_with_deepspeed(job: argparse.Namespace) -> None:
    """Train for a few steps with DeepSpeed."""
    import deepspeed

    model = built(job)
    configuration = {
        "train_micro_batch_size_per_gpu": job.batch,
        "gradient_accumulation_steps": job.accumulate,
        "bf16": {"enabled": True, "check_grad_overflow": False},
        "zero_optimization": {"stage": int(job.parallel[-1])},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=optimizer_of(model, job),
        config=configuration,
    )
    inputs = inputs_of(job)
    for _ in range(STEPS * job.accumulate):
        engine.backward(engine(**inputs)["loss"])
        engine.step()


def main() -> None:
    """Train like the options say."""
    job = options()
    if job.parallel.startswith("zero"):
        train_with_deepspeed(job)
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("hccl")
    train(job)


if __name__ == "__main__":
    main()
