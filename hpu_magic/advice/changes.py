"""Changes of the precision, mode or optimizer, described by estimate arguments and by code.

This module does not import torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.estimates.layout import Buckets


@dataclass(frozen=True)
class Choice:
    """An alternative to the current step; see `Suggestion` for the fields with the same names."""

    group: str  # only the best choice in a group is shown
    title: str
    change: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # changes to the estimate
    command: str = ""
    by_hand: str = ""
    during: Callable[[], AbstractContextManager[Any]] | None = None
    """Creates the context in which the step is traced, for choices that replace operators."""
    remark: str = ""  # additional information, as a sentence
    buckets: Buckets = field(default_factory=Buckets)
    needs_lazy_mode: bool = False
    """Whether it needs lazy mode, which the vendor no longer develops."""


@dataclass(frozen=True)
class Settings:
    """The current settings of a step, named like the arguments of an estimate."""

    mode: str
    dtype: str
    train: bool
    optimizer: str
    has_fp8: bool  # whether the card supports it


def as_code(name: str) -> str:
    """Convert a dotted name to Python code: ``model.layers[0]`` for ``model.layers.0``."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name)


def precisions(
    now: Settings, name: str, framework: str | None, deepspeed: Mapping[str, Any] | None
) -> Iterator[Choice]:
    """Yield precisions that are faster than the current one."""
    if now.dtype == "fp32":
        change, command, by_hand = _AUTOCAST, "%hpu_autocast on", ""
        arguments: dict[str, Any] = {"dtype": "bf16-mixed"}
        if deepspeed is not None:
            change, command, by_hand = _BF16["deepspeed"], "", CONFIGURED
            arguments = {"deepspeed": {**deepspeed, "bf16": {"enabled": True}}}
        if framework is not None:
            change, command = _BF16[framework], ""
            by_hand = "a Trainer's precision is set when it is created"
        yield Choice(
            "precision",
            "Use mixed precision with bfloat16",
            change,
            arguments,
            command,
            by_hand,
        )
    elif now.dtype != "fp8" and now.has_fp8:
        yield Choice(
            "precision",
            "Use FP8 linear layers",
            _FP8_TRAINING.format(name=as_code(name))
            if now.train
            else _FP8_INFERENCE.format(name=name),
            {"dtype": "fp8"},
            by_hand="FP8 scales must first be measured on your data",
            remark="Check the model's accuracy afterwards.",
        )


_AUTOCAST = """with torch.autocast("hpu", dtype=torch.bfloat16):
    loss = step(batch)"""
_BF16 = {
    "deepspeed": 'config["bf16"] = {"enabled": True}  # in DeepSpeed\'s configuration',
    "lightning": 'trainer = Trainer(..., precision="bf16-mixed")',
    "transformers": "args = TrainingArguments(..., bf16=True)",
}
CONFIGURED = "DeepSpeed reads its configuration when training starts"
_FP8_TRAINING = """import habana_frameworks.torch.hpex.experimental.transformer_engine as te
# replace nn.Linear with te.Linear
with te.fp8_autocast(enabled=True):
    output = {name}(batch)"""
_FP8_INFERENCE = """%hpu_fp8_measure {name} --data loader
# in a new process, because Neural Compressor does one of these steps per process
%hpu_fp8_quantize {name}"""


def modes(now: Settings, name: str) -> Iterator[Choice]:
    """Yield modes that need fewer launches."""
    if now.mode != "eager":
        return
    yield Choice(
        "mode",
        "Compile the model",
        f'{as_code(name)} = torch.compile({as_code(name)}, backend="hpu_backend")',
        {"mode": "compile"},
        by_hand="your optimizer or Trainer would keep using the uncompiled model",
    )
    yield Choice(
        "mode",
        "Replay HPU Graphs",
        f"%hpu_mode lazy --restart\n%hpu_wrap {name}",
        {"mode": "graphs"},
        by_hand="it takes two steps, with a kernel restart in between",
        needs_lazy_mode=True,
    )
    yield Choice(
        "mode",
        "Run in lazy mode",
        "%hpu_mode lazy --restart\n"
        "import habana_frameworks.torch.core as htcore\n"
        "htcore.mark_step()  # after backward(), and after optimizer.step()",
        {"mode": "lazy"},
        "%hpu_mode lazy --restart",
        needs_lazy_mode=True,
    )


_DEFAULTS = {
    "FusedAdamW": "The defaults are eps=1e-6 and weight_decay=0; those of AdamW are 1e-8 and 0.01."
}
_FUSED_OPTIMIZERS = {"adamw": "FusedAdamW", "sgd": "FusedSGD", "adagrad": "FusedAdagrad"}


def optimizers(now: Settings, name: str) -> Iterator[Choice]:
    """Yield the vendor's version of the optimizer, if there is one."""
    name_of_fused = _FUSED_OPTIMIZERS.get(now.optimizer.lower().replace("_", ""))
    if not now.train or name_of_fused is None:
        return
    yield Choice(
        "optimizer",
        f"Use {name_of_fused}, which updates all weights in one call",
        f"from habana_frameworks.torch.hpex.optimizers import {name_of_fused}\n"
        f"optimizer = {name_of_fused}({name}.parameters(), lr=...)",
        {"optimizer": name_of_fused},
        by_hand="the state of your optimizer would be lost",
        remark=_DEFAULTS.get(name_of_fused, ""),
    )
