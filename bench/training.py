"""Time of a training step on the device, relative to the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from bench.harness import Figure, in_turn, quiet_ratio

TARGET = 1.05
MLP_BATCH = (64, 784)
CNN_BATCH = (64, 1, 28, 28)
TRANSFORMER_BATCH = (16, 64, 128)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def transformer_layer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(64 * 128, 10))


def training_step(
    build: Callable[[], nn.Module],
    batch: tuple[int, ...],
    device: str,
    wrap: Callable[[nn.Module], Callable[[torch.Tensor], torch.Tensor]] = lambda model: model,
    data_on: str = "cpu",
) -> Callable[[], float]:
    """Return a function that runs a training step, copies the batch and reads the loss."""
    torch.manual_seed(0)
    model = build().to(device)
    run = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(batch, device=data_on)
    labels = torch.randint(0, 10, batch[:1], device=data_on)

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run(inputs.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


MODELS = (
    ("MLP", mlp, MLP_BATCH, 400),
    ("CNN", cnn, CNN_BATCH, 200),
    ("transformer layer", transformer_layer, TRANSFORMER_BATCH, 100),
)


def step_ratios(
    compared: str,
    pair: Callable[[Callable[[], nn.Module], tuple[int, ...]], list[Callable[[], float]]],
    kind: str = "training step",
    target: float | None = TARGET,
) -> Iterator[Figure]:
    """Yield a figure for each model; `pair` returns the baseline step and the candidate step."""
    for name, build, batch, rounds in MODELS:
        steps = pair(build, batch)
        for _ in range(5):
            for step in steps:
                step()
        value = quiet_ratio(in_turn(*steps, rounds))
        yield Figure(f"{kind}, {name}: {compared}", value, "ratio", target)


def figures() -> Iterator[Figure]:
    return step_ratios(
        "hpu / cpu",
        lambda build, batch: [training_step(build, batch, device) for device in ("cpu", "hpu")],
    )
