"""Test transformers' `Trainer` on the device against the CPU with the same seed."""

import math
import os

import pytest

pytest.importorskip("transformers")

import torch
from features import TRANSFORMERS, proves
from tiny_models import LOGGED, bert, parity, sentences


def classified(rows):
    return sentences(rows, labels=parity)


class Fit:
    """A fit with its losses, evaluation and predictions."""

    def __init__(self, folder, *, resume=None, **arguments):
        from transformers import Trainer, TrainingArguments, set_seed

        set_seed(0)
        usual = {
            "per_device_train_batch_size": 4,
            "num_train_epochs": 2,
            "learning_rate": 1e-3,
            **LOGGED,
        }
        self.trainer = Trainer(
            bert(),
            TrainingArguments(str(folder), **{**usual, **arguments}),
            train_dataset=classified(16),
            eval_dataset=classified(8),
            compute_metrics=lambda all: {
                "accuracy": float((all.predictions.argmax(-1) == all.label_ids).mean())
            },
        )
        self.device = self.trainer.args.device.type
        self.trainer.train(resume_from_checkpoint=resume)
        self.losses = [row["loss"] for row in self.trainer.state.log_history if "loss" in row]
        evaluation = self.trainer.evaluate()
        self.evaluation = evaluation["eval_loss"], evaluation["eval_accuracy"]
        self.predictions = torch.tensor(self.trainer.predict(classified(8)).predictions)


def assert_equal(device, cpu, tolerance):
    assert (device.device, cpu.device) == ("hpu", "cpu")
    assert len(device.losses) == len(cpu.losses) > 2
    assert len(set(cpu.losses)) > 2
    assert device.losses == pytest.approx(cpu.losses, abs=tolerance)
    assert device.evaluation == pytest.approx(cpu.evaluation, abs=tolerance)
    torch.testing.assert_close(device.predictions, cpu.predictions, atol=tolerance, rtol=0)
    assert next(device.trainer.model.parameters()).device.type == "hpu"


@proves(TRANSFORMERS, "`Trainer`: train, evaluate, predict")
def test_fit_equals_the_cpu(tmp_path):
    assert_equal(Fit(tmp_path), Fit(tmp_path, use_cpu=True), 1e-5)


@proves(TRANSFORMERS, "`Trainer`: bf16")
def test_bfloat16_fit_is_close_to_the_cpu(tmp_path):
    device = Fit(tmp_path, bf16=True, bf16_full_eval=True)
    assert_equal(device, Fit(tmp_path, bf16=True, bf16_full_eval=True, use_cpu=True), 2e-2)
    assert device.losses != pytest.approx(Fit(tmp_path).losses, abs=1e-6), "nothing was rounded"


@proves(TRANSFORMERS, "`Trainer`: gradient accumulation")
def test_accumulated_gradients_equal_the_cpu(tmp_path):
    device = Fit(tmp_path, gradient_accumulation_steps=2)
    assert_equal(device, Fit(tmp_path, gradient_accumulation_steps=2, use_cpu=True), 1e-5)
    assert device.trainer.state.global_step == 4


@proves(TRANSFORMERS, "`Trainer`: gradient checkpointing")
def test_gradient_checkpointing_changes_no_result(tmp_path):
    assert_equal(Fit(tmp_path, gradient_checkpointing=True), Fit(tmp_path, use_cpu=True), 1e-5)


@proves(TRANSFORMERS, "`Trainer`: checkpoints and resuming")
def test_resumed_fit_equals_an_uninterrupted_one(tmp_path):
    uninterrupted = Fit(tmp_path, save_strategy="steps", save_steps=4)
    checkpoint = tmp_path / "checkpoint-4"
    assert {"model.safetensors", "optimizer.pt", "rng_state.pth"} <= set(os.listdir(checkpoint))
    resumed = Fit(tmp_path, resume=str(checkpoint), max_steps=8)
    assert resumed.losses == uninterrupted.losses
    assert resumed.evaluation == uninterrupted.evaluation
    assert torch.equal(resumed.predictions, uninterrupted.predictions)


@proves(TRANSFORMERS, "`Trainer`: memory metrics")
def test_memory_metrics_are_those_of_the_card(tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, skip_memory_metrics=False, report_to=[], save_strategy="no"
    )
    model = bert()
    size = sum(math.prod(each.shape) * 4 for each in model.parameters())
    metrics = Trainer(model, arguments, train_dataset=classified(8)).train().metrics
    assert metrics["init_mem_gpu_alloc_delta"] >= size
    assert metrics["train_mem_gpu_alloc_delta"] >= 2 * size, "the optimizer's two moments"


@proves(TRANSFORMERS, "`Trainer`: `torch_compile=True`")
@pytest.mark.skipif("HPU_MAGIC_TEST_LAZY" in os.environ, reason="lazy mode has no compile backend")
def test_compiled_fit_equals_the_cpu(tmp_path, compilations):
    compiled = Fit(tmp_path, torch_compile=True, max_steps=4)
    assert compiled.trainer.args.torch_compile_backend == "hpu_backend"
    assert compilations() > 0
    assert_equal(compiled, Fit(tmp_path, use_cpu=True, max_steps=4), 1e-5)
