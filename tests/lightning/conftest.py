"""A model whose runs on the CPU and on the card are compared as wholes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUIET = {"enable_model_summary": False, "enable_progress_bar": False}


@pytest.fixture
def lightning(torch: Any) -> Any:
    """Lightning's Trainer and what belongs to it."""
    return importlib.import_module("lightning.pytorch")


@pytest.fixture
def net(lightning: Any, torch: Any) -> type[Any]:
    """A classifier that uses every kind of step and notes where it ran."""

    from steps import Steps

    class Net(Steps, lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.save_hyperparameters()
            torch.manual_seed(1)
            self.body = torch.nn.Sequential(
                torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Tanh()
            )
            self.head = torch.nn.Linear(width, 3)
            self.seen: list[tuple[str, str, Any]] = []

        def forward(self, inputs: Any) -> Any:
            return self.head(self.body(inputs))

        def loss(self, batch: Any, kind: str) -> Any:
            inputs, labels = batch
            scores = self(inputs)
            self.seen.append((kind, scores.device.type, scores.dtype))
            loss = torch.nn.functional.cross_entropy(scores.float(), labels)
            self.log(f"{kind}_loss", loss, prog_bar=True)
            right = (scores.argmax(1) == labels).float().mean()
            self.log(f"{kind}_accuracy", right, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch: Any, index: int) -> Any:
            self.in_inference_mode = torch.is_inference_mode_enabled()
            return super().validation_step(batch, index)

    return Net


@pytest.fixture
def loader(torch: Any) -> Callable[..., Any]:
    """Make a loader of the same shuffled batches each time."""

    def make(shuffle: bool = True) -> Any:
        generator = torch.Generator().manual_seed(2)
        inputs = torch.randn(32, 4, generator=generator)
        labels = inputs[:, :3].argmax(1)
        data = torch.utils.data.TensorDataset(inputs, labels)
        return torch.utils.data.DataLoader(
            data, batch_size=8, shuffle=shuffle, generator=torch.Generator().manual_seed(3)
        )

    return make


@pytest.fixture
def trainer(lightning: Any, tmp_path: Path) -> Callable[..., Any]:
    """Make a Trainer that logs into a file and says nothing."""

    def make(accelerator: str, **options: Any) -> Any:
        logger = lightning.loggers.CSVLogger(tmp_path / accelerator, flush_logs_every_n_steps=1)
        defaults = {
            "accelerator": accelerator,
            "devices": 1,
            "max_epochs": 2,
            "log_every_n_steps": 1,
            "logger": logger,
            "enable_checkpointing": False,
            "num_sanity_val_steps": 0,
        }
        return lightning.Trainer(**QUIET, **(defaults | options))

    return make


@pytest.fixture
def same_weights(torch: Any) -> Callable[..., None]:
    """Compare all parameters and buffers of two models."""

    def compare(one: Any, other: Any, **tolerances: float) -> None:
        mine, its = one.state_dict(), other.state_dict()
        assert list(mine) == list(its)
        for name, value in mine.items():
            torch.testing.assert_close(value.cpu(), its[name].cpu(), **tolerances, msg=name)

    return compare


@pytest.fixture
def logged() -> Callable[[Any], str]:
    """Return all that a run logged, as text."""
    return lambda trainer: (Path(trainer.logger.log_dir) / "metrics.csv").read_text()
