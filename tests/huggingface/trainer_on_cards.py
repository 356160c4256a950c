"""A program with transformers' `Trainer`, for any number of cards."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from tiny_models import bert, llama, tokens

BATCH, ROWS = 8, 16  # of a step and of an evaluation, on all cards


class Sentences(torch.utils.data.Dataset):
    """Sentences whose tokens are labels; the number of labels differs between rows."""

    def __init__(self, rows: int):
        self.ids = tokens(rows)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        ids = self.ids[i]
        mask = torch.ones_like(ids)
        return {"input_ids": ids, "attention_mask": mask, "labels": self.labels(i)}

    def labels(self, i: int) -> torch.Tensor:
        """Return the labels of a row; the last tokens have none."""
        return self.ids[i].where(torch.arange(len(self.ids[i])) < 2 + i % 7, -100)


class Classes(Sentences):
    """Sentences whose class is the parity of the sum of their tokens."""

    def labels(self, i: int) -> torch.Tensor:
        """Return the class of a row."""
        return self.ids[i].sum() % 2


CASES: dict[str, dict[str, Any]] = {
    "text": {},
    "accumulated": {"gradient_accumulation_steps": 2},
    # A classifier's loss is already an average over a card's rows.
    "classes": {"classes": True, "average_tokens_across_devices": False},
    "sharded": {
        "fsdp": True,
        "fsdp_config": {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
    },
}
ON_CPU = {"use_cpu": True, "fsdp": False}


def fit(cards: int, classes: bool = False, **options) -> dict[str, Any]:
    """Train with eight sentences per step on all cards, and return the results."""
    from transformers import Trainer, TrainingArguments, set_seed

    set_seed(0)
    rows = Classes if classes else Sentences
    with tempfile.TemporaryDirectory() as folder:
        usual = {
            "per_device_train_batch_size": BATCH // cards,
            "per_device_eval_batch_size": ROWS // cards,
            "max_steps": 6,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
        }
        trainer = Trainer(
            bert() if classes else llama(),
            TrainingArguments(folder, **usual, **options),
            train_dataset=rows(64),
            eval_dataset=rows(ROWS),
        )
        trainer.train()
        evaluation = trainer.evaluate()["eval_loss"]
        predictions = trainer.predict(rows(5)).predictions
    logged = [row for row in trainer.state.log_history if "loss" in row]
    return {
        "device": str(trainer.args.device),
        "cards": trainer.args.world_size,
        "mode": "lazy" if os.environ.get("PT_HPU_LAZY_MODE") == "1" else "eager",
        "kind": trainer.accelerator.distributed_type.value,
        "losses": [row["loss"] for row in logged],
        "norms": [row["grad_norm"] for row in logged],
        "evaluation": evaluation,
        "predictions": [float(row.std()) for row in predictions],
    }


def main():
    """Fit the cases in the arguments; rank 0 writes the results to a file."""
    result, *names = sys.argv[1:]
    fits = {name: fit(int(os.environ["WORLD_SIZE"]), **CASES[name]) for name in names}
    if os.environ["RANK"] == "0":
        backend = torch.distributed.get_backend()
        results = {name: {**each, "backend": backend} for name, each in fits.items()}
        Path(result).write_text(json.dumps(results), encoding="utf-8")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
