"""transformers.Trainer on the device: the CPU's losses, from the same program and seed."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from features import TRANSFORMERS, proves
from tiny_models import bert, tokens


class Sentences(torch.utils.data.Dataset):
    """Sentences whose class is whether their tokens add up to an odd number."""

    def __init__(self, rows: int) -> None:
        self.ids = tokens(rows)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        ids = self.ids[i]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.sum() % 2}


class Fit:
    """What `Trainer` gives for a program with some arguments."""

    def __init__(self, folder: Path, *, resume: str | None = None, **arguments: Any) -> None:
        from transformers import Trainer, TrainingArguments, set_seed

        set_seed(0)
        usual = {
            "per_device_train_batch_size": 4,
            "num_train_epochs": 2,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
        }
        self.trainer = Trainer(
            bert(),
            TrainingArguments(str(folder), **{**usual, **arguments}),
            train_dataset=Sentences(16),
            eval_dataset=Sentences(8),
            compute_metrics=lambda all: {
                "accuracy": float((all.predictions.argmax(-1) == all.label_ids).mean())
            },
        )
        self.device = self.trainer.args.device.type
        self.trainer.train(resume_from_checkpoint=resume)
        self.losses = [row["loss"] for row in self.trainer.state.log_history if "loss" in row]
        evaluation = self.trainer.evaluate()
        self.evaluation = evaluation["eval_loss"], evaluation["eval_accuracy"]
        self.predictions = torch.tensor(self.trainer.predict(Sentences(8)).predictions)


def assert_equal(device: Fit, cpu: Fit, within: float) -> None:
    assert (device.device, cpu.device) == ("hpu", "cpu")
    assert len(device.losses) == len(cpu.losses) > 2
    assert len(set(cpu.losses)) > 2
    assert device.losses == pytest.approx(cpu.losses, abs=within)
    assert device.evaluation == pytest.approx(cpu.evaluation, abs=within)
    torch.testing.assert_close(device.predictions, cpu.predictions, atol=within, rtol=0)
    assert next(device.trainer.model.parameters()).device.type == "hpu"


@proves(TRANSFORMERS, "`Trainer`: train, evaluate, predict")
@pytest.mark.usefixtures("shell")
def test_a_fit_equals_the_cpus(tmp_path):
    assert_equal(Fit(tmp_path), Fit(tmp_path, use_cpu=True), 1e-5)


@proves(TRANSFORMERS, "`Trainer`: bf16")
@pytest.mark.usefixtures("shell")
def test_a_fit_in_bfloat16_equals_the_cpus(tmp_path):
    device = Fit(tmp_path, bf16=True, bf16_full_eval=True)
    assert_equal(device, Fit(tmp_path, bf16=True, bf16_full_eval=True, use_cpu=True), 2e-2)
    assert device.losses != pytest.approx(Fit(tmp_path).losses, abs=1e-6), "nothing was rounded"


@proves(TRANSFORMERS, "`Trainer`: gradient accumulation")
@pytest.mark.usefixtures("shell")
def test_gradients_accumulate(tmp_path):
    device = Fit(tmp_path, gradient_accumulation_steps=2)
    assert_equal(device, Fit(tmp_path, gradient_accumulation_steps=2, use_cpu=True), 1e-5)
    assert device.trainer.state.global_step == 4


@proves(TRANSFORMERS, "`Trainer`: gradient checkpointing")
@pytest.mark.usefixtures("shell")
def test_checkpointed_layers_train_as_others(tmp_path):
    assert_equal(Fit(tmp_path, gradient_checkpointing=True), Fit(tmp_path, use_cpu=True), 1e-5)


@proves(TRANSFORMERS, "`Trainer`: checkpoints and resuming")
@pytest.mark.usefixtures("shell")
def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    whole = Fit(tmp_path, save_strategy="steps", save_steps=4)
    checkpoint = tmp_path / "checkpoint-4"
    assert {"model.safetensors", "optimizer.pt", "rng_state.pth"} <= set(os.listdir(checkpoint))
    again = Fit(tmp_path, resume=str(checkpoint), max_steps=8)
    assert again.losses == whole.losses
    assert again.evaluation == whole.evaluation
    assert torch.equal(again.predictions, whole.predictions)


@proves(TRANSFORMERS, "`Trainer`: memory metrics")
@pytest.mark.usefixtures("shell")
def test_memory_metrics_are_the_cards(tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, skip_memory_metrics=False, report_to=[], save_strategy="no"
    )
    model = bert()
    size = sum(math.prod(each.shape) * 4 for each in model.parameters())
    metrics = Trainer(model, arguments, train_dataset=Sentences(8)).train().metrics
    assert metrics["init_mem_gpu_alloc_delta"] >= size
    assert metrics["train_mem_gpu_alloc_delta"] >= 2 * size, "the optimizer's two moments"


@proves(TRANSFORMERS, "`Trainer`: `torch_compile=True`")
@pytest.mark.skipif("HPU_MAGIC_TEST_LAZY" in os.environ, reason="lazy mode has no compile backend")
@pytest.mark.usefixtures("shell")
def test_a_compiled_fit_equals_the_cpus(tmp_path, compilations):
    compiled = Fit(tmp_path, torch_compile=True, max_steps=4)
    assert compiled.trainer.args.torch_compile_backend == "hpu_backend"
    assert compilations() > 0
    assert_equal(compiled, Fit(tmp_path, use_cpu=True, max_steps=4), 1e-5)
