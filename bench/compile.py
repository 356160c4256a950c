"""Training and inference through torch.compile(backend="hpu_backend") against eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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


def inference(build: Callable[[], nn.Module], batch: tuple[int, ...], *, compiled: bool):
    """Return a function that predicts one batch on the device, and reads one value of it."""
    torch.manual_seed(0)
    model = build().to("hpu").eval()
    run = torch.compile(model, backend="hpu_backend") if compiled else model
    inputs = torch.randn(batch, device="hpu")

    @torch.no_grad()
    def predict() -> float:
        return run(inputs)[0, 0].item()

    return predict


def figures() -> Iterator[Figure]:
    for what, step in (("training step", training_step), ("inference", inference)):

        def pair(
            build: Callable[[], nn.Module], batch: tuple[int, ...], step: Any = step
        ) -> list[Callable[[], float]]:
            torch._dynamo.reset()
            return [step(build, batch, compiled=compiled) for compiled in (False, True)]

        yield from step_ratios("hpu_backend / eager", pair, what)
