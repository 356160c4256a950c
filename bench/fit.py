"""Duration of a Lightning fit on the device, relative to the CPU."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn

from bench.harness import Figure, in_turn, quiet_ratio
from bench.training import MODELS

TARGET = 1.05
STEPS = 40
ROUNDS = 16


def fit(build: Callable[[], nn.Module], batch: tuple[int, ...], accelerator: str):
    """Return a function that runs `Trainer.fit` for `STEPS` steps, including setup and teardown."""
    import lightning.pytorch as lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = build()

        def training_step(self, data, index):
            inputs, labels = data
            loss = nn.functional.cross_entropy(self.layers(inputs), labels)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    model = Classifier()
    batches = [(torch.randn(batch), torch.randint(0, 10, batch[:1]))] * STEPS
    loader = torch.utils.data.DataLoader(batches, batch_size=None)

    def run() -> None:
        trainer = lightning.Trainer(
            accelerator=accelerator,
            devices=1,
            max_steps=STEPS,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        trainer.fit(model, loader)

    return run


def figures() -> Iterator[Figure]:
    import hpu_magic.lightning  # noqa: F401

    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for name, build, batch, _ in MODELS:
        cpu, hpu = (fit(build, batch, accelerator) for accelerator in ("cpu", "hpu"))
        value = quiet_ratio(in_turn(cpu, hpu, ROUNDS))
        yield Figure(f"Lightning's fit, {name}: hpu / cpu", value, "ratio", TARGET)
