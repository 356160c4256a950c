"""Steps that the test models share, and options of the `Trainer`."""

from pathlib import Path

import pytest
import torch

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
DISTRIBUTIONS = (NAMESPACES[0], pytest.param(NAMESPACES[1], marks=pytest.mark.once))
QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
}


def same_weights(one, other, **tolerances: float):
    """Compare all parameters and buffers of two models."""
    state, other_state = one.state_dict(), other.state_dict()
    assert list(state) == list(other_state)
    for name, value in state.items():
        torch.testing.assert_close(value.cpu(), other_state[name].cpu(), **tolerances, msg=name)


def logged(trainer) -> str:
    """Return the text of a run's log."""
    return (Path(trainer.logger.log_dir) / "metrics.csv").read_text()


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
