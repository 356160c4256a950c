"""What is tried wherever there is no page with widgets: a fit, a panel and a captured graph."""

from __future__ import annotations

import os

SETUP = """
import torch, lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self, wrong_at=None):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.wrong_at = wrong_at
    def training_step(self, batch, index):
        if self.global_step == self.wrong_at:
            raise ValueError("the data is broken")
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
class Slow(pl.Callback):
    def on_train_batch_end(self, *step):
        __import__("time").sleep(0.2)
def trainer(epochs, *callbacks):
    return pl.Trainer(accelerator="hpu", devices=1, max_epochs=epochs, logger=False,
        callbacks=list(callbacks), enable_checkpointing=False, enable_model_summary=False)
rows = torch.utils.data.TensorDataset(torch.randn(64, 8))
data = torch.utils.data.DataLoader(rows, 16)
"""
DEVICE = "%hpu"
PANEL = "%hpu_memory_live"
FIT = "%%hpu_fit -o fitted\ntrainer(epochs).fit(Model(), data)"
RESULT = "fitted.outcome, fitted.steps"
FAILING = "%%hpu_fit -o failed\ntrainer(epochs).fit(Model(wrong_at=5), data)"
FAILED = "failed.outcome, failed.steps"
TENSOR = "x = torch.ones(2, 3, device='hpu')"
GRAPH = "%%hpu_capture step --inputs x\ny = x * 2 + 1"
REPLAY = "%hpu_replay step -n 10"
CELLS = ["%load_ext hpu_magic", SETUP, DEVICE, PANEL, FIT, RESULT, TENSOR, GRAPH, REPLAY]
CELLS += [FAILING, FAILED]

# What a front end shows of an object that it cannot show.
NO_WORDS = ["VBox(", "HBox(", "HTML(value", "Widget(", "<IPython.core.display.", "<hpu_magic."]

ENVIRONMENT = {**os.environ, "PT_HPU_LAZY_MODE": "1", "HLS_MODULE_ID": "5"}
"""Graphs are captured in lazy mode."""
