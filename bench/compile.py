"""One training step through torch.compile(backend="hpu_backend") against the same step in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from .harness import Figure, in_turn, median_ratio
from .training import (
    CNN_BATCH,
    MLP_BATCH,
    TRANSFORMER_BATCH,
    cnn,
    mlp,
    transformer_layer,
)

TARGET = 1.05


def training_step(build: Callable[[], nn.Module], batch: tuple[int, ...], *, compiled: bool):
    """Return a function that trains a model on the device for one step, loss read included."""
    torch.manual_seed(0)
    model = build().to("hpu")
    run = torch.compile(model, backend="hpu_backend") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(batch, device="hpu")
    labels = torch.randint(0, 10, batch[:1], device="hpu")

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def figures() -> Iterator[Figure]:
    models = (
        ("MLP", mlp, MLP_BATCH, 400),
        ("CNN", cnn, CNN_BATCH, 200),
        ("transformer layer", transformer_layer, TRANSFORMER_BATCH, 100),
    )
    for name, build, batch, rounds in models:
        torch._dynamo.reset()
        steps = [training_step(build, batch, compiled=compiled) for compiled in (False, True)]
        for _ in range(5):
            for step in steps:
                step()
        value = median_ratio(in_turn(*steps, rounds))
        yield Figure(f"training step, {name}: hpu_backend / eager", value, "ratio", TARGET)
