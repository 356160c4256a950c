"""Training with ``deepspeed.initialize``: models, batches and losses."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch import nn

STEPS = 20
EPSILON = 1e-3
BATCH, WIDTH, CLASSES = 8, 32, 10


class Block(nn.Sequential):
    """A residual block.

    The block uses the tanh approximation of GELU, because the device also does for exact GELU.
    """

    def __init__(self) -> None:
        super().__init__(
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.GELU("tanh"),
            nn.Linear(2 * WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return values of the shape of ``x``, (batch, width)."""
        return x + super().forward(x)


class Blocks(nn.Module):
    """A classifier with residual blocks; ``checkpointed`` recomputes them in the backward pass."""

    def __init__(self, checkpointed: bool = False, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, classes)."""
        x = x.requires_grad_()  # without this, the first checkpointed block has no gradients
        for block in self.blocks:
            # With checkpoint_in_cpu, DeepSpeed frees x, so the block contains all of its uses.
            x = deepspeed.checkpointing.checkpoint(block, x) if self.checkpointed else block(x)
        return self.head(x)


def config(**more: Any) -> dict[str, Any]:
    """Return DeepSpeed's configuration with ``more`` entries, which replace the defaults."""
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        # On cards, DeepSpeed's own AdamW does not correct epsilon for the bias. A small epsilon
        # would turn rounding errors of tiny gradients into full steps.
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-3, "weight_decay": 0.01, "eps": EPSILON, "torch_adam": True},
        },
        "gradient_clipping": 0.0,  # otherwise, DeepSpeed clips to 1
        "steps_per_print": 10**9,
        **more,
    }


def batches(rank: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield random inputs (batch, width) and classes (batch,) on the host, which differ by rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    while True:
        x = torch.randn(BATCH, WIDTH, generator=generator)
        yield x, torch.randint(0, CLASSES, (BATCH,), generator=generator)


def engine_for(model: nn.Module, settings: dict[str, Any], parameters: Any = None) -> Any:
    """Return DeepSpeed's engine for a model on the host."""
    chosen = list(model.parameters()) if parameters is None else parameters
    engine, *_ = deepspeed.initialize(model=model, model_parameters=chosen, config=settings)
    if engine.device.type != os.environ.get("DS_ACCELERATOR", "hpu"):
        raise AssertionError(f"DeepSpeed trains on {engine.device}.")
    return engine


def losses_of(
    engine: Any, count: int = STEPS, skip: int = 0, first_factor: float = 1
) -> list[float]:
    """Train for ``count`` batches after the first ``skip`` ones, and return this rank's losses.

    The gradients of the first batch are multiplied by ``first_factor``.
    """
    dtype = next(engine.module.parameters()).dtype
    found = []
    for x, y in itertools.islice(batches(engine.global_rank), skip, skip + count):
        logits = engine(x.to(engine.device, dtype))
        loss = nn.functional.cross_entropy(logits.float(), y.to(engine.device))
        engine.backward(loss if found else loss * first_factor)
        engine.step()
        found.append(loss.item())
    return found


def train(folder: Path, settings: dict[str, Any], offload: str = "", **model: Any) -> list[float]:
    """Train a classifier; ``{folder}`` in offload paths becomes a folder on the disk."""
    torch.manual_seed(0)
    for name in filter(None, offload.split(",")):
        settings["zero_optimization"][name]["nvme_path"] = str(folder)
    return losses_of(engine_for(Blocks(**model), config(**settings)))


def accumulate(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with three batches per step and clipped gradients; also return the gradient norms."""
    torch.manual_seed(0)
    more = {"gradient_accumulation_steps": 3, "gradient_clipping": 0.1}
    engine = engine_for(Blocks(), config(**settings, **more))
    found = losses_of(engine, 3 * STEPS)
    norm = engine.get_global_grad_norm()
    if norm is None:  # ZeRO stage 0 in float32 clips without storing the norm
        return found
    if norm <= 0.1:
        raise AssertionError(f"The gradients were not clipped: their norm is {norm}.")
    return [*found, float(norm)]


def scaled(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train in fp16; the gradients of the first batch overflow. Also return the loss scale."""
    torch.manual_seed(0)
    fp16 = {"enabled": True, "loss_scale_window": 5, "hysteresis": 1}
    engine = engine_for(Blocks(), config(fp16=fp16, **settings))
    found = losses_of(engine, first_factor=2.0**24)
    if not engine.skipped_steps:
        raise AssertionError("No step overflowed, so the loss scale was not tested.")
    return [*found, float(engine.skipped_steps), float(engine.optimizer.loss_scale)]


def checkpointed(folder: Path, settings: dict[str, Any], **options: Any) -> list[float]:
    """Train with DeepSpeed's activation checkpointing."""
    torch.manual_seed(0)
    deepspeed.init_distributed()
    deepspeed.checkpointing.configure(None, num_checkpoints=3, **options)
    return losses_of(engine_for(Blocks(checkpointed=True), config(**settings)))


def fused(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with DeepSpeed's own AdamW: ``torch.ops.hpu.optimizer_adamw`` on cards."""
    torch.manual_seed(0)
    chosen = config(**settings)
    del chosen["optimizer"]["params"]["torch_adam"], chosen["optimizer"]["params"]["eps"]
    return losses_of(engine_for(Blocks(), chosen))


def compiled(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with ``engine.compile()``, which uses the accelerator's backend."""
    torch.manual_seed(0)
    engine = engine_for(Blocks(), config(**settings))
    engine.compile()
    found = losses_of(engine)
    if not engine.is_compiled:
        raise AssertionError("engine.compile() did not compile the model.")
    return found


def distributed_data_parallel(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with DDP and PyTorch's AdamW instead of a DeepSpeed engine."""
    import torch.distributed as dist
    from deepspeed.accelerator import get_accelerator

    torch.manual_seed(0)
    deepspeed.init_distributed()
    device = get_accelerator().device_name()
    model = nn.parallel.DistributedDataParallel(Blocks().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, eps=EPSILON)
    found = []
    for x, y in itertools.islice(batches(dist.get_rank()), STEPS):
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
