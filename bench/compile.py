"""Training and inference through torch.compile(backend="hpu_backend").

Training steps are compared with eager mode. Inference is also compared with a backend that runs the
graph unchanged. The target applies to the second comparison, because TorchDynamo's guards run
before any backend and take a tenth of the time of a short inference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from bench.harness import Figure
from bench.training import TARGET, step_ratios, training_step


def compiled(model: nn.Module, backend: str | None) -> Callable[[torch.Tensor], torch.Tensor]:
    return torch.compile(model, backend=backend) if backend else model


def training(build: Callable[[], nn.Module], batch: tuple[int, ...], backend: str | None):
    """Return a training step, compiled with a torch.compile backend or in eager mode."""
    return training_step(build, batch, "hpu", lambda model: compiled(model, backend), "hpu")


def inference(build: Callable[[], nn.Module], batch: tuple[int, ...], backend: str | None):
    """Return a function that runs inference on the device and reads one value of the output."""
    torch.manual_seed(0)
    model = build().to("hpu").eval()
    run = compiled(model, backend)
    inputs = torch.randn(batch, device="hpu")

    @torch.no_grad()
    def predict() -> float:
        return run(inputs)[0, 0].item()

    return predict


def figures() -> Iterator[Figure]:
    for name, step, baseline, compared, target in (
        ("training step", training, None, "hpu_backend / eager", TARGET),
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
