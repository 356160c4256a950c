"""A program with transformers' `Trainer`, for any number of cards."""

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tiny_models import LOGGED, bert, llama, parity, sentences

BATCH, ROWS = 8, 16  # rows of a step and of an evaluation, on all cards


def first_tokens(ids: torch.Tensor, row: int) -> torch.Tensor:
    """Return the first tokens as labels; their number depends on the row."""
    return ids.where(torch.arange(len(ids)) < 2 + row % 7, -100)


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
    rows = partial(sentences, labels=parity if classes else first_tokens)
    with tempfile.TemporaryDirectory() as folder:
        usual = {
            "per_device_train_batch_size": BATCH // cards,
            "per_device_eval_batch_size": ROWS // cards,
            "max_steps": 6,
            "learning_rate": 1e-2,
            **LOGGED,
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
