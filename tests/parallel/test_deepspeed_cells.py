"""Test DeepSpeed in a notebook's workers: panel, table of ranks, result, and a rank that exits."""

import re

import pytest
from running_notebook import Notebook

pytest.importorskip("deepspeed")

START = """%%hpu_workers --cards 2
import json, os, pathlib, signal
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import deepspeed, torch
import hpu_magic

rank = int(os.environ["RANK"])
ending = None  # how rank 1 ends in its third step

def end(step):
    if rank == 1 and step == 3:
        if ending == "error":
            raise ValueError("no data")
        if ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

zero = {"stage": 2, "reduce_bucket_size": 1000, "allgather_bucket_size": 1000}
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": zero,
          "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
          "steps_per_print": 10**9}
rows = torch.arange(128.0).view(32, 4) / 128
"""
LOOP = """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
# Two groups of parameters, each of which DeepSpeed steps separately.
groups = [{"params": [one for one in model.parameters() if one.dim() == n]} for n in (1, 2)]
engine, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config)
def run(pause=0):
    import time
    watched = hpu_magic.watch(torch.utils.data.DataLoader(rows, batch_size=4))
    for step, batch in enumerate(watched):
        time.sleep(pause)
        end(step)
        loss = engine(batch.to("hpu")).square().mean()
        engine.backward(loss)
        engine.step()
        watched.log(loss=loss)
    return watched.result
result = run(0.2)
"""
LIGHTNING = """
import lightning.pytorch as L

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        end(index)
        loss = self.layer(batch).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def run():
    trainer = L.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, max_epochs=2, accelerator="hpu", devices=2,
                        strategy="hpu_deepspeed")
    return hpu_magic.fit(trainer, Net(), torch.utils.data.DataLoader(rows, batch_size=4))
result = run()
"""
TRANSFORMERS = """
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

class End(TrainerCallback):
    def on_step_begin(self, args, state, control, **others):
        end(state.global_step)

tokens = [{"input_ids": one, "labels": one} for one in torch.arange(512).view(64, 8) % 64]
small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64,
         "num_attention_heads": 2, "num_key_value_heads": 2}
def run():
    folder = pathlib.Path(FOLDER, str(rank))
    folder.mkdir(exist_ok=True)
    path = folder / "ds_config.json"
    path.write_text(json.dumps(config | {"train_micro_batch_size_per_gpu": "auto"}))
    arguments = TrainingArguments(
        str(folder), deepspeed=str(path), max_steps=8, per_device_train_batch_size=4,
        learning_rate=0.01, weight_decay=0.01, report_to="none", save_strategy="no",
        logging_steps=1, max_grad_norm=1.0)
    model = LlamaForCausalLM(LlamaConfig(**small))
    trainer = Trainer(model=model, args=arguments, train_dataset=tokens, callbacks=[End()])
    result = hpu_magic.fit(trainer)
    assert type(trainer.model_wrapped).__name__ == "DeepSpeedEngine"
    return result
result = run()
"""


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook()
    notebook.run("%load_ext hpu_magic")
    output = notebook.run(START)
    assert not output.error, output.error
    yield notebook
    notebook.close()


@pytest.mark.parametrize(
    ("code", "kind"), [(LOOP, "Loop"), (LIGHTNING, "Fit"), (TRANSFORMERS, "Fit")]
)
def test_training_is_shown_and_survives_an_error(notebook, tmp_path, code, kind):
    code = code.replace("FOLDER", repr(str(tmp_path)))
    cell = f"%%hpu_workers\nending = None\n{code}"
    output = notebook.run(cell)
    assert not output.error, output.error
    shown = "\n".join(output.texts)
    assert shown.count(f"{kind} finished") == 1, shown
    rows = re.findall(r"^  (\d) +HPU (\d) .* 8 ", output.ranks, re.MULTILINE)
    assert rows == [("0", "0"), ("1", "1")], output.ranks
    assert result_of(notebook) == "finished 8"
    if kind == "Fit":
        stage = "result.observed.settings.deepspeed['zero_optimization']['stage']"
        assert printed(notebook, stage) == "2"

    below = notebook.run("%%hpu_workers\nresult = None\nending = 'error'\nrun()")
    assert below.error.endswith(
        "Rank 1 raised ValueError: no data. Rank 0 was interrupted. The ranks have left their "
        "process group: the next cell can create a new one."
    )
    again = notebook.run(cell)
    assert not again.error, again.error
    assert result_of(notebook) == "finished 8"


def test_training_does_not_survive_a_killed_rank(notebook):
    below = notebook.run(f"%%hpu_workers\nending = 'kill'\n{LOOP}")
    ended = r"Rank 1 was killed by SIGKILL\. Rank 0 (raised DistBackendError after|was interrupted)"
    assert re.search(ended, below.error), below.error
    assert "was killed by SIGKILL" in notebook.run("%hpu_workers").texts[0]


def result_of(notebook):
    """Return the outcome and steps that all ranks have recorded."""
    return printed(notebook, "result.outcome, result.steps")


def printed(notebook, values):
    """Print values on all ranks, and return the output, which must be the same on all of them."""
    (shown,) = notebook.run(f"%%hpu_workers\nprint({values})").texts
    return shown.removeprefix("ranks 0 and 1\n  ").rstrip()
