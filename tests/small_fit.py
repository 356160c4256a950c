"""Code for cells and scripts that defines a fit of a few batches."""

from typing import Any
from xml.etree import ElementTree

TRAINER = """
import time, torch, lightning.pytorch as pl
class Layer(pl.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
def loader(rows=64, width=8, batch=16):
    data = torch.utils.data.TensorDataset(torch.randn(rows, width))
    return torch.utils.data.DataLoader(data, batch)
def make_trainer(**options):
    options = dict(accelerator="hpu", devices=1, max_epochs=2, logger=False,
        enable_checkpointing=False, enable_model_summary=False) | options
    return pl.Trainer(**options)
"""
SETUP = f"""{TRAINER}
class Model(Layer):
    def __init__(self, fail_at=None):
        super().__init__()
        self.fail_at = fail_at
    def training_step(self, batch, index):
        if self.global_step == self.fail_at:
            raise ValueError("the data is broken")
        loss = super().training_step(batch, index)
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", self.layer(batch[0]).square().mean())
trainer, model, data = make_trainer(), Model(), loader()
"""


def monitor_of(trainer: Any) -> Any:
    """Return the callback that observes a running fit."""
    from hpu_magic.lightning.fit.monitor import LightningMonitorBase

    [monitor] = [each for each in trainer.callbacks if isinstance(each, LightningMonitorBase)]
    return monitor


def layout(picture: str, name: str = "wide") -> ElementTree.Element:
    """Return the part of a picture for wide or narrow pages."""
    nodes = ElementTree.fromstring(picture).iter()
    return next(node for node in nodes if node.get("class") == f"hpu-magic-{name}")
