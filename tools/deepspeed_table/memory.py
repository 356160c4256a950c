"""The peak memory of a training step with DeepSpeed: measured on cards, estimated on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

from deepspeed_table.training import config

WIDTH, BATCH, STEPS = 256, 256, 4


class Wide(nn.Module):
    """Residual blocks whose weights and activations need similar amounts of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 3 * WIDTH),
                nn.ReLU(),
                nn.Linear(3 * WIDTH, WIDTH),
            )
            for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss of inputs of shape (batch, width)."""
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x).float().square().mean()


def peaks(settings: dict[str, Any]) -> list[int]:
    """Return the peak memory of the last step in bytes: forward, backward and optimizer."""
    earlier = torch.hpu.memory_allocated()
    model = Wide()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings
    )
    x = torch.randn(BATCH, WIDTH).to(engine.device, next(engine.module.parameters()).dtype)
    for _ in range(STEPS * engine.gradient_accumulation_steps()):
        found = []
        torch.hpu.reset_peak_memory_stats()
        loss = engine(x)
        found.append(torch.hpu.max_memory_allocated())
        torch.hpu.reset_peak_memory_stats()
        engine.backward(loss)
        del loss
        found.append(torch.hpu.max_memory_allocated())
        torch.hpu.reset_peak_memory_stats()
        engine.step()
        found.append(torch.hpu.max_memory_allocated())
    return [each - earlier for each in found]


def estimated(settings: dict[str, Any], cards: int) -> Any:
    """Return the estimate of the step."""
    import hpu_magic

    x = torch.randn(BATCH, WIDTH)
    return hpu_magic.estimate(Wide(), x, cards=cards, deepspeed=settings, mode="eager")


def settings_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the complete configuration for `Wide`."""
    return config(**settings) | {"train_micro_batch_size_per_gpu": BATCH}


def peak(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Return the peak memory of a step on the card that uses the most memory, in bytes."""
    from deepspeed.accelerator import get_accelerator

    deepspeed.init_distributed()
    chosen = settings_of(settings)
    if get_accelerator().device_name() == "cpu":
        return [estimated(chosen, dist.get_world_size()).peak]
    found = torch.tensor(max(peaks(chosen)), device=get_accelerator().current_device_name())
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [float(found)]
