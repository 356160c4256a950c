"""Models and trainers for runs on the card that are compared with the CPU."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from steps import DISTRIBUTIONS, QUIET, Steps


@pytest.fixture(params=DISTRIBUTIONS)
def pytorch(request, torch):
    """Each of the two distributions of Lightning."""
    return pytest.importorskip(request.param)


@pytest.fixture
def make_model(pytorch, torch):
    """A small regression model that collects losses, devices and dtypes in training."""

    class Model(pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
            )
            self.losses = []
            self.seen = set()

        def training_step(self, batch, index):
            (inputs,) = batch
            outputs = self.layers(inputs)
            self.seen.add((str(outputs.device), outputs.dtype))
            loss = (outputs.float() - inputs.sum(1, keepdim=True)).square().mean()
            self.losses.append(loss.item())
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, index):
            outputs = self.layers(batch[0])
            self.seen.add((str(outputs.device), outputs.dtype))

        def _loader(self):
            generator = torch.Generator().manual_seed(0)
            data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=generator))
            return torch.utils.data.DataLoader(data, batch_size=16)

        train_dataloader = val_dataloader = _loader

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.02)

    return Model


@pytest.fixture
def lightning(torch):
    """Lightning's namespace of the `Trainer`."""
    return importlib.import_module("lightning.pytorch")


@pytest.fixture
def net(lightning, torch):
    """A classifier that uses every kind of step and records its devices."""

    class Net(Steps, lightning.LightningModule):
        def __init__(self, width: int = 8):
            super().__init__()
            self.save_hyperparameters()
            torch.manual_seed(1)
            self.body = torch.nn.Sequential(
                torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Tanh()
            )
            self.head = torch.nn.Linear(width, 3)
            self.seen: list[tuple[str, str, Any]] = []

        def forward(self, inputs):
            return self.head(self.body(inputs))

        def loss(self, batch, kind: str):
            inputs, labels = batch
            scores = self(inputs)
            self.seen.append((kind, scores.device.type, scores.dtype))
            loss = torch.nn.functional.cross_entropy(scores.float(), labels)
            self.log(f"{kind}_loss", loss, prog_bar=True)
            right = (scores.argmax(1) == labels).float().mean()
            self.log(f"{kind}_accuracy", right, on_step=False, on_epoch=True)
            return loss

        def validation_step(self, batch, index: int):
            self.in_inference_mode = torch.is_inference_mode_enabled()
            return super().validation_step(batch, index)

    return Net


@pytest.fixture
def silent(net, torch):
    """A model that does not call ``log``, which reads the loss and which Dynamo cannot compile."""

    class Silent(net):
        def loss(self, batch, kind):
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    return Silent


@pytest.fixture
def loader(torch):
    """A function that creates a loader with the same shuffled batches on each call."""

    def make(shuffle: bool = True):
        generator = torch.Generator().manual_seed(2)
        inputs = torch.randn(32, 4, generator=generator)
        labels = inputs[:, :3].argmax(1)
        data = torch.utils.data.TensorDataset(inputs, labels)
        return torch.utils.data.DataLoader(
            data, batch_size=8, shuffle=shuffle, generator=torch.Generator().manual_seed(3)
        )

    return make


@pytest.fixture
def trainer(lightning, tmp_path: Path):
    """A function that creates a `Trainer` that logs only to a file."""

    def make(accelerator: str, **options):
        logger = lightning.loggers.CSVLogger(tmp_path / accelerator, flush_logs_every_n_steps=1)
        defaults = {
            "accelerator": accelerator,
            "devices": 1,
            "max_epochs": 2,
            "log_every_n_steps": 1,
            "logger": logger,
            "num_sanity_val_steps": 0,
        }
        return lightning.Trainer(**(QUIET | defaults | options))

    return make
