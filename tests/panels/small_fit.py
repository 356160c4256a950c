"""A fit of some batches, as cells and scripts define it, and the layouts of its picture."""

from __future__ import annotations

from xml.etree import ElementTree


def layout(picture: str, name: str = "wide") -> ElementTree.Element:
    """Return the part of a picture that wide or narrow pages show."""
    nodes = ElementTree.fromstring(picture).iter()
    return next(node for node in nodes if node.get("class") == f"hpu-magic-{name}")


SETUP = """
import torch, lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self, fail_at=None):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.fail_at = fail_at
    def training_step(self, batch, index):
        if self.global_step == self.fail_at:
            raise ValueError("the data is broken")
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", self.layer(batch[0]).square().mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
def loader(rows=64):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(rows, 8)), 16)
def make_trainer(**options):
    options = dict(accelerator="hpu", devices=1, max_epochs=2, logger=False,
        enable_checkpointing=False, enable_model_summary=False) | options
    return pl.Trainer(**options)
trainer, model, data = make_trainer(), Model(), loader()
"""
