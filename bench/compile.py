"""Training and inference through torch.compile(backend="hpu_backend").

A training step is compared with eager mode. Inference is also compared with a backend that runs the
graph unchanged, which determines its target: the guards of TorchDynamo, which run before any
backend, take a tenth of a short inference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from bench.harness import Figure
from bench.training import TARGET, step_ratios


def training_step(build: Callable[[], nn.Module], batch: tuple[int, ...], backend: str | None):
    """Return a function that runs a training step on the device and reads the loss.

    `backend` is the backend of torch.compile; None uses eager mode.
    """
    torch.manual_seed(0)
    model = build().to("hpu")
    run = torch.compile(model, backend=backend) if backend else model
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


def inference(build: Callable[[], nn.Module], batch: tuple[int, ...], backend: str | None):
    """Return a function that predicts one batch on the device and reads one value."""
    torch.manual_seed(0)
    model = build().to("hpu").eval()
    run = torch.compile(model, backend=backend) if backend else model
    inputs = torch.randn(batch, device="hpu")

    @torch.no_grad()
    def predict() -> float:
        return run(inputs)[0, 0].item()

    return predict


def figures() -> Iterator[Figure]:
    for name, step, baseline, compared, target in (
        ("training step", training_step, None, "hpu_backend / eager", TARGET),
        ("inference", inference, "eager", "hpu_backend / Dynamo alone", TARGET),
        ("inference", inference, None, "hpu_backend / eager", None),
    ):

        def pair(
            build: Callable[[], nn.Module],
            batch: tuple[int, ...],
            step: Any = step,
            baseline: str | None = baseline,
        ) -> list[Callable[[], float]]:
            torch._dynamo.reset()
            return [step(build, batch, backend) for backend in (baseline, "hpu_backend")]

        yield from step_ratios(compared, pair, name, target)
