"""DeepSpeed through other libraries: accelerate, transformers and the cell magic."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deepspeed_table.training import EPSILON, STEPS, Blocks, batches, config

PLACE = str(Path(__file__).parents[1])
TORCHVISION = Path(__file__).parents[2] / "tests" / "huggingface" / "torchvision_stand_in"


def accelerate(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with ``Accelerator(deepspeed_plugin=...)``."""
    from accelerate import Accelerator, DeepSpeedPlugin

    plugin = DeepSpeedPlugin(hf_ds_config=config(**settings))
    accelerator = Accelerator(deepspeed_plugin=plugin)
    from accelerate.utils import DummyOptim

    torch.manual_seed(0)
    model = Blocks()
    model, optimizer = accelerator.prepare(model, DummyOptim(model.parameters(), lr=1e-3))
    found = []
    for x, y in itertools.islice(batches(accelerator.process_index), STEPS):
        logits = model(x.to(accelerator.device))
        loss = nn.functional.cross_entropy(logits, y.to(accelerator.device))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


class Tokens(torch.utils.data.Dataset):
    """Random sequences of tokens."""

    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, 128, (16,), generator=generator)
        return {"input_ids": tokens, "labels": tokens}


def trainer(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with transformers' ``Trainer`` and ``--deepspeed ds_config.json``."""
    from deepspeed.accelerator import get_accelerator
    from transformers import Trainer, TrainingArguments

    on_cpu = get_accelerator().device_name() == "cpu"
    line = ["--use_cpu", on_cpu, "--disable_tqdm", True]
    return _train(folder, settings, Trainer, TrainingArguments, line)


def gaudi_trainer(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with optimum-habana's ``GaudiTrainer`` and ``--deepspeed ds_config.json``."""
    sys.path.append(str(TORCHVISION))  # only optimum-habana may find torchvision, not Lightning
    from optimum.habana import GaudiConfig, GaudiTrainer, GaudiTrainingArguments

    line = ["--use_habana", True, "--use_lazy_mode", False, "--disable_tqdm", True]
    return _train(
        folder, settings, GaudiTrainer, GaudiTrainingArguments, line, gaudi_config=GaudiConfig()
    )


def _train(
    folder: Path,
    settings: dict[str, Any],
    kind: type[Any],
    arguments_kind: type[Any],
    more: list[Any],
    **options: Any,
) -> list[float]:
    """Return the losses of a ``Trainer`` class whose arguments are parsed from a command line."""
    from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM

    from deepspeed_table.parallel import SMALL

    written = folder / "ds_config.json"
    chosen = config(**settings)
    chosen["train_micro_batch_size_per_gpu"] = "auto"
    chosen["gradient_clipping"] = "auto"
    chosen["optimizer"]["params"] |= {"lr": "auto", "weight_decay": "auto", "eps": "auto"}
    if int(os.environ["RANK"]) == 0:
        written.write_text(json.dumps(chosen))
    while not written.exists() or not written.read_text().endswith("}"):
        pass
    line = [
        "--output_dir",
        folder / "out",
        "--deepspeed",
        written,
        "--per_device_train_batch_size",
        2,
    ]
    line += [
        "--max_steps",
        STEPS,
        "--logging_steps",
        1,
        "--report_to",
        "none",
        "--save_strategy",
        "no",
    ]
    line += ["--adam_epsilon", EPSILON, "--max_grad_norm", 0]
    [arguments] = HfArgumentParser(arguments_kind).parse_args_into_dataclasses(
        [*map(str, [*line, *more])]
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMALL))
    used = kind(model=model, args=arguments, train_dataset=Tokens(), **options)
    used.train()
    if type(used.model_wrapped).__name__ != "DeepSpeedEngine":
        raise AssertionError(f"Trainer trained a {type(used.model_wrapped).__name__}.")
    return [row["loss"] for row in used.state.log_history if "loss" in row]


def lightning(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train with Lightning's ``Trainer`` and ``HPUDeepSpeedStrategy``."""
    import lightning.pytorch as pytorch

    from hpu_magic.lightning import HPUDeepSpeedStrategy

    class Module(pytorch.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = Blocks()
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = nn.functional.cross_entropy(self.blocks(x), y)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3, weight_decay=0.01, eps=EPSILON)

    chosen = config(**settings, zero_allow_untested_optimizer=True)
    del chosen["optimizer"]
    torch.manual_seed(0)
    module = Module()
    own = [*itertools.islice(batches(int(os.environ["RANK"])), STEPS)]
    pytorch.Trainer(
        accelerator="hpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy=HPUDeepSpeedStrategy(config=chosen),
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,  # each rank has its own batches
    ).fit(module, torch.utils.data.DataLoader(own, batch_size=None))
    return module.losses


def cell(folder: Path, settings: dict[str, Any]) -> list[float]:
    """Train in ``%%hpu_workers``, and return the losses of all workers."""
    from IPython.testing.globalipapp import start_ipython

    shell = start_ipython()
    shell.run_line_magic("load_ext", "hpu_magic")
    code = (
        f"import sys\nsys.path.insert(0, {PLACE!r})\n"
        "from deepspeed_table import training\n"
        f"losses = training.train({str(folder)!r}, {settings!r})\n"
    )
    try:
        shell.run_cell_magic("hpu_workers", "--cards 2 --output losses", code)
    finally:
        shell.run_line_magic("hpu_workers", "off")
    return list(itertools.chain(*shell.user_ns["losses"]))


if __name__ == "__main__":
    sys.exit("Run `make deepspeed`.")
