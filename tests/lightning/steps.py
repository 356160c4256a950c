"""Steps that the test models share, and options of the `Trainer`."""

import torch

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
}


class Steps:
    """A mixin for a LightningModule with a method ``loss``."""

    def training_step(self, batch, index: int):
        return self.loss(batch, "train")

    def validation_step(self, batch, index: int):
        return self.loss(batch, "val")

    def test_step(self, batch, index: int):
        return self.loss(batch, "test")

    def predict_step(self, batch, index: int):
        return self(batch[0]).softmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]
