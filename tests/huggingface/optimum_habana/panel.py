"""Fits of `GaudiTrainer` with a panel, started by `hpu_magic.fit` or observed as in `%%hpu_fit`."""

import tempfile
from typing import Any

from optimum.habana import GaudiConfig, GaudiTrainer, GaudiTrainingArguments
from reports import MODE, report
from tiny_models import llama, sentences

import hpu_magic
from hpu_magic.fits.observed import observed_fits

ROWS = sentences(32, 12)


def trainer(folder: str, **options):
    arguments = GaudiTrainingArguments(
        output_dir=folder,
        use_habana=True,
        use_lazy_mode=MODE == "lazy",
        per_device_train_batch_size=8,
        num_train_epochs=2,
        gradient_accumulation_steps=2,
        save_strategy="no",
        eval_strategy="epoch",
        report_to=[],
        **options,
    )
    config = GaudiConfig(use_fused_adam=True, use_fused_clip_norm=True)
    return GaudiTrainer(llama(), config, args=arguments, train_dataset=ROWS, eval_dataset=ROWS[:8])


def observed(result) -> dict[str, Any]:
    return {
        "outcome": result.outcome,
        "steps": result.steps,
        "batches": result.batches,
        "where": result.where,
        "device": result.device,
        "metrics": result.metrics,
        "has evaluation chart": "eval_loss" in result.picture or "validation" in result.picture,
    }


def by_function() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return observed(hpu_magic.fit(trainer(folder, logging_steps=1)))


def in_a_cell() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, observed_fits() as results:
        trainer(folder, logging_steps=1).train()
    assert len(results) == 1
    return observed(results[0])


report({"by the function": by_function, "in a cell": in_a_cell})
