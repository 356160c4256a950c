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


def peaks(
    settings: dict[str, Any],
    model: nn.Module,
    batch: dict[str, torch.Tensor],
    optimizer: torch.optim.Optimizer | None = None,
) -> list[int]:
    """Return the peak memory of the last step in bytes: forward, backward and optimizer."""
    earlier = torch.hpu.memory_allocated()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), optimizer=optimizer, config=settings
    )
    dtype = next(engine.module.parameters()).dtype
    batch = {
        name: each.to(engine.device, dtype if each.is_floating_point() else None)
        for name, each in batch.items()
    }
    for _ in range(STEPS * engine.gradient_accumulation_steps()):
        found = []
        torch.hpu.reset_peak_memory_stats()
        output = engine(**batch)
        loss = getattr(output, "loss", output)
        del output
        found.append(torch.hpu.max_memory_allocated())
        torch.hpu.reset_peak_memory_stats()
        engine.backward(loss)
        del loss
        found.append(torch.hpu.max_memory_allocated())
        torch.hpu.reset_peak_memory_stats()
        engine.step()
        found.append(torch.hpu.max_memory_allocated())
    return [each - earlier for each in found]


def peak_and_estimate(
    settings: dict[str, Any], model: nn.Module, batch: dict[str, torch.Tensor], *optimizer: Any
) -> tuple[int, int]:
    """Return the measured and the estimated peak memory of a step on two cards, in bytes."""
    import hpu_magic

    chosen = {"optimizer": optimizer[0]} if optimizer else {}
    estimate = hpu_magic.estimate(model, batch, cards=2, deepspeed=settings, **chosen)
    return max(peaks(settings, model, batch, *optimizer)), estimate.peak


def inputs() -> dict[str, torch.Tensor]:
    """Return a batch for `Wide`."""
    return {"x": torch.randn(BATCH, WIDTH)}


def settings_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the complete configuration for `Wide`."""
    return config(**settings) | {"train_micro_batch_size_per_gpu": BATCH}


def peak(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Return the peak memory of a step on the card that uses the most memory, in bytes."""
    from deepspeed.accelerator import get_accelerator

    deepspeed.init_distributed()
    chosen = settings_of(settings)
    if get_accelerator().device_name() == "cpu":
        import hpu_magic

        estimate = hpu_magic.estimate(Wide(), inputs(), cards=2, deepspeed=chosen)
        return [float(estimate.peak)]
    measured = max(peaks(chosen, Wide(), inputs()))
    found = torch.tensor(measured, device=get_accelerator().current_device_name())
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [float(found)]
