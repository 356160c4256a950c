"""One training step through torch.compile(backend="hpu_backend") against the same step in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from .harness import Figure
from .training import step_ratios


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
    def pair(build: Callable[[], nn.Module], batch: tuple[int, ...]) -> list[Callable[[], float]]:
        torch._dynamo.reset()
        return [training_step(build, batch, compiled=compiled) for compiled in (False, True)]

    return step_ratios("hpu_backend / eager", pair)
