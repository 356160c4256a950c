"""Steps that the models under test share; each model computes and logs its loss in its own way."""

from __future__ import annotations

from typing import Any

import torch


class Steps:
    """To be inherited before a LightningModule that has a method ``loss``."""

    def training_step(self, batch: Any, index: int) -> Any:
        return self.loss(batch, "train")

    def validation_step(self, batch: Any, index: int) -> Any:
        return self.loss(batch, "val")

    def test_step(self, batch: Any, index: int) -> Any:
        return self.loss(batch, "test")

    def predict_step(self, batch: Any, index: int) -> Any:
        return self(batch[0]).softmax(1)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]
