"""Test trainers of trl and sentence-transformers with a panel, and compare them with the CPU."""

import re

import pytest

pytest.importorskip("trl", reason="`make huggingface` has an environment with trl")

import torch
from features import SENTENCE_TRANSFORMERS, TRL, proves
from tiny_models import LOGGED, bert, llama
from tiny_tokenizer import tokenizer

import hpu_magic


def words(first, step):
    return " ".join(f"w{(first * place * step) % 50}" for place in range(1, 9))


def rows(kind):
    """Return 32 rows of plain text, or of prompts with a chosen and a rejected answer."""
    from datasets import Dataset

    if kind == "text":
        return Dataset.from_list([{"text": words(row, 1)} for row in range(32)])
    return Dataset.from_list(
        [
            {
                "prompt": words(row, 1),
                "chosen": f" {words(row, 2)}",
                "rejected": f" {words(row, 3)}",
            }
            for row in range(32)
        ]
    )


def trainer(kind, folder, *, cpu, lora=False):
    """Return a trainer with 8 steps and an evaluation at the end."""
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    torch.manual_seed(0)
    options = {"ref_model": llama()} if kind == "pairs" else {}
    if lora:
        places = ["q_proj", "v_proj"]
        options["peft_config"] = LoraConfig(r=4, target_modules=places, task_type="CAUSAL_LM")
    torch.manual_seed(0)
    make, configuration = {"text": (SFTTrainer, SFTConfig), "pairs": (DPOTrainer, DPOConfig)}[kind]
    data = rows(kind)
    return make(
        llama(),
        args=configuration(
            str(folder),
            use_cpu=cpu,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=4,
            num_train_epochs=1,
            learning_rate=1e-2,
            eval_strategy="epoch",
            **LOGGED,
        ),
        train_dataset=data,
        eval_dataset=data.select(range(8)),
        processing_class=tokenizer(),
        **options,
    )


def logged(chosen):
    """Return the logged losses, gradient norms and evaluations of a trainer, in order."""
    names = ("loss", "grad_norm", "eval_loss")
    return [float(row[name]) for row in chosen.state.log_history for name in names if name in row]


def assert_fits(kind, folder, **options):
    found = trainer(kind, folder, cpu=False, **options)
    result = hpu_magic.fit(found)
    expected = trainer(kind, folder, cpu=True, **options)
    expected.train()
    assert (found.args.device.type, expected.args.device.type) == ("hpu", "cpu")
    assert len(logged(expected)) == 17
    assert len(set(logged(expected))) == 17
    assert logged(found) == pytest.approx(logged(expected), abs=2e-5)
    assert (result.outcome, result.steps, result.batches) == ("finished", 8, 8)
    assert result.where == "epoch 1 of 1, batch 8 of 8"
    assert re.fullmatch(r"HPU \d \(simulated GAUDI2\)", result.device)
    assert result.metrics["loss"] == pytest.approx(logged(expected)[-3], abs=1e-4)
    assert result.metrics["eval_loss"] == pytest.approx(logged(expected)[-1], abs=1e-4)
    assert not {"num_tokens", "eval_num_tokens", "epoch"} & result.metrics.keys()
    assert result.picture.startswith("<svg")


@proves(TRL, "`SFTTrainer`: fit with live panel, with `%%hpu_fit` and `hpu_magic.fit`")
def test_supervised_tuning_equals_the_cpu(tmp_path):
    assert_fits("text", tmp_path)


@proves(TRL, "`SFTTrainer`: LoRA of peft")
def test_adapter_tuning_equals_the_cpu(tmp_path):
    assert_fits("text", tmp_path, lora=True)


@proves(TRL, "`DPOTrainer`: fit with live panel")
def test_preference_tuning_equals_the_cpu(tmp_path):
    assert_fits("pairs", tmp_path)


@proves(TRL, "`SFTTrainer`: fit with live panel, with `%%hpu_fit` and `hpu_magic.fit`")
def test_fit_in_a_cell_is_observed(tmp_path, shell, run, own_card):
    shell.user_ns["tuned"] = trainer("text", tmp_path, cpu=False)
    cell = run("%%hpu_fit -o kept\nout = tuned.train()\nNone")
    assert cell.error is None
    assert cell.out.count(f"Fit finished on {own_card}: 1 epoch") == 1
    assert (shell.user_ns["out"].global_step, shell.user_ns["kept"].steps) == (8, 8)


@proves(SENTENCE_TRANSFORMERS, "`SentenceTransformerTrainer`: fit with live panel")
def test_embedding_training_equals_the_cpu(tmp_path):
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(0)
    bert().bert.save_pretrained(tmp_path / "bert")
    tokenizer().save_pretrained(tmp_path / "bert")
    pairs = Dataset.from_list(
        [
            {"sentence1": words(row, 1), "sentence2": words(row, 2), "score": row % 2 * 1.0}
            for row in range(32)
        ]
    )
    fits = []
    for cpu in (True, False):
        transformer = Transformer(str(tmp_path / "bert"))
        modules = [transformer, Pooling(transformer.get_embedding_dimension())]
        model = SentenceTransformer(modules=modules, device="cpu" if cpu else "hpu")
        arguments = SentenceTransformerTrainingArguments(
            str(tmp_path / "fit"),
            use_cpu=cpu,
            per_device_train_batch_size=8,
            num_train_epochs=2,
            learning_rate=1e-2,
            **LOGGED,
        )
        loss = CosineSimilarityLoss(model)
        fits.append(SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=loss))
        result = hpu_magic.fit(fits[-1])
    cpus, found = fits
    assert (cpus.args.device.type, found.args.device.type) == ("cpu", "hpu")
    assert (result.outcome, result.steps) == ("finished", 8)
    assert len(set(logged(cpus))) == 16
    assert logged(found) == pytest.approx(logged(cpus), abs=1e-4)
