"""Lightning's own demonstration model."""

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

import hpu_magic.lightning  # noqa: F401 (adds the accelerator)

trainer = Trainer(
    accelerator="hpu",
    devices=1,
    max_epochs=1,
    limit_train_batches=6,
    limit_val_batches=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(BoringModel())
