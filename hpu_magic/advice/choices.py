"""Alternatives to the current step, each described by estimate arguments and by code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from hpu_magic.advice import fused
from hpu_magic.advice.changes import (
    CONFIGURED,
    Choice,
    Settings,
    as_code,
    modes,
    optimizers,
    precisions,
)
from hpu_magic.estimates.layout import Buckets
from hpu_magic.estimates.result import Estimate
from hpu_magic.estimates.tracing.recomputation import layers

LARGEST_BATCH_FACTOR = 64  # even larger batches would affect the training results


def choices(
    model: nn.Module,
    base: Estimate,
    name: str,
    framework: str | None,
    deepspeed: Mapping[str, Any] | None = None,
) -> Iterator[Choice]:
    """Yield the alternatives to the current step, except for other batch sizes.

    ``name`` is the model's name in the user's code, in the dotted form that magics accept.
    ``framework`` is the framework used for training, ``lightning`` or ``transformers``, if any, and
    ``deepspeed`` is DeepSpeed's configuration if the step uses DeepSpeed.
    """
    code = as_code(name)
    now = Settings(
        base.options.mode,
        base.options.dtype,
        base.options.train,
        base.options.optimizer,
        base.card.has_fp8,
    )
    yield from precisions(now, name, framework, deepspeed)
    yield from modes(now, name)
    yield from optimizers(now, code)
    yield from _recomputations(model, base, code)
    if deepspeed is None:
        yield from _layouts(base, code)
        yield from _buckets(base, code)
    else:  # DeepSpeed has its own buckets
        yield from _stages(base, deepspeed)
    yield from _operators(model, base, code)


def of_batch(size: int | str, base: Estimate, framework: str | None) -> Choice:
    """Return the option of using a different batch size; ``size`` may be ``largest``."""
    change = f"loader = DataLoader(..., batch_size={size})"
    if framework == "transformers" and base.options.train:
        change = f"args = TrainingArguments(..., per_device_train_batch_size={size})"
    return Choice(
        "batch",
        f"{'Train with' if base.options.train else 'Run'} batches of {size}",
        change,
        {"batch": size},
        by_hand="your data loader creates the batches",
        remark="You may also need to adjust the learning rate." if base.options.train else "",
    )


def _recomputations(model: nn.Module, base: Estimate, name: str) -> Iterator[Choice]:
    now = base.options.step.checkpointing
    if not base.options.train or not layers(model) or _recomputes(model):
        return
    enable, disable = _methods(model)
    titles = {
        "none": "Keep activations instead of recomputing them",
        "selective": "Recompute cheap operations, but keep the results of matrix multiplications",
        "full": "Recompute activations in the backward pass",
    }
    order = list(titles)
    for kind, title in titles.items():
        # More recomputation is slower, so it is only suggested if the step does not fit in memory.
        if kind == now or (base.fits and order.index(kind) > order.index(now)):
            continue
        command = ""
        if kind == "none":
            change = "output = layer(hidden)  # without torch.utils.checkpoint.checkpoint"
            if disable:
                change = command = f"{name}.{disable}()"
        elif kind == "full" and enable:
            change = command = f"{name}.{enable}()"
        else:
            change = _SELECTIVE if kind == "selective" else _FULL
        yield Choice(
            # A change that a single command can apply gets its own group, so that it is always
            # shown.
            f"checkpointing {command}".rstrip(),
            title,
            change,
            {"checkpointing": kind},
            command,
            "" if command else "it requires changes to the model's code",
        )


def _recomputes(model: nn.Module) -> bool:
    """Return whether a transformers model already recomputes activations on its own."""
    names = "is_activation_checkpointing", "is_gradient_checkpointing"  # the second name is older
    name = next((each for each in names if hasattr(model, each)), None)
    return name is not None and bool(getattr(model, name))


def _methods(model: nn.Module) -> tuple[str, str]:
    """Return the names of the methods that enable and disable recomputation, or empty strings."""
    if not getattr(model, "supports_gradient_checkpointing", True):
        return "", ""
    found = [
        next((each for each in names if hasattr(model, each)), "")
        for names in (  # the second name is older
            ("activation_checkpointing_enable", "gradient_checkpointing_enable"),
            ("activation_checkpointing_disable", "gradient_checkpointing_disable"),
        )
    ]
    return found[0], found[1]


_FULL = """from torch.utils.checkpoint import checkpoint
output = checkpoint(layer, hidden, use_reentrant=False)  # for each layer"""
_SELECTIVE = """from functools import partial
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
kept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]
kept += [torch.ops.aten.convolution.default]
contexts = partial(create_selective_checkpoint_contexts, kept)
output = checkpoint(layer, hidden, use_reentrant=False, context_fn=contexts)  # for each layer"""

# Titles and PyTorch code for the layouts of an estimate, in the order of ZeRO stages.
_STAGES = {
    "ddp": (
        "Keep the whole model on each card",
        "from torch.nn.parallel import DistributedDataParallel\n"
        "{name} = DistributedDataParallel({name})",
    ),
    "zero1": (
        "Shard the optimizer state across the cards (ZeRO 1)",
        "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
        "optimizer = ZeroRedundancyOptimizer({name}.parameters(), type(optimizer), lr=...)",
    ),
    "zero2": (
        "Also shard gradients across the cards (ZeRO 2)",
        "from torch.distributed.fsdp import fully_shard\n"
        "fully_shard({name}, reshard_after_forward=False)  # each of its layers first",
    ),
    "fsdp": (
        "Also shard weights across the cards (ZeRO 3)",
        "from torch.distributed.fsdp import fully_shard\n"
        "fully_shard({name})  # each of its layers first",
    ),
}
_BY_SCRIPT = "it requires changes to the script that runs on all cards"
_WIDE = "The memory is that of DeepSpeed, which keeps float32 copies of the weights."


def _layouts(base: Estimate, name: str) -> Iterator[Choice]:
    layout = base.layout
    if not base.options.train or layout.tensor * layout.pipeline > 1:
        return
    if layout.cards == 1 and base.fits:
        return
    now = None if layout.cards == 1 else list(_STAGES)[layout.zero]
    cards = 8 if layout.cards == 1 else layout.cards
    narrow = base.options.dtype == "bf16"
    for parallel, (title, change) in _STAGES.items():
        if parallel != now:
            more = "" if layout.cards > 1 else f" on {cards} cards"
            yield Choice(
                "layout",
                title + more,
                change.format(name=name),
                {"cards": cards, "parallel": parallel},
                by_hand=_BY_SCRIPT,
                remark=_WIDE if parallel in ("zero1", "zero2") and narrow else "",
            )


def _buckets(base: Estimate, name: str) -> Iterator[Choice]:
    if not base.options.train or base.layout.data == 1 or base.layout.zero:
        return
    yield Choice(
        "buckets",
        "Make gradients views of the buckets in which they are exchanged",
        "from torch.nn.parallel import DistributedDataParallel\n"
        f"{name} = DistributedDataParallel({name}, gradient_as_bucket_view=True)",
        by_hand=_BY_SCRIPT,
        buckets=Buckets(views=True),
    )


def _stages(base: Estimate, deepspeed: Mapping[str, Any]) -> Iterator[Choice]:
    """Yield the other ZeRO stages of a step that uses DeepSpeed."""
    if base.layout.cards == 1:
        return
    for stage, (title, _) in enumerate(_STAGES.values()):
        if stage != base.layout.zero:
            zero = {**(deepspeed.get("zero_optimization") or {}), "stage": stage}
            yield Choice(
                "layout",
                title,
                f'config["zero_optimization"]["stage"] = {stage}  # in DeepSpeed\'s configuration',
                {"deepspeed": {**deepspeed, "zero_optimization": zero}},
                by_hand=CONFIGURED,
            )


def _operators(model: nn.Module, base: Estimate, name: str) -> Iterator[Choice]:
    for kind, norms in fused.plain_norms(model).items():
        yield Choice(
            f"norms {kind}",
            f"Replace the {len(norms)} {kind} with FusedRMSNorm",
            _NORMS.format(name=name, kind=kind, epsilon=_epsilon_code(norms)),
            during=partial(fused.fused_norms, norms),
            by_hand="your norm layer may do more than the fused one",
        )
    # First-generation cards support neither this operator nor FP8.
    if base.card.has_fp8 and fused.uses_unfused_attention(base.program):
        yield Choice(
            "attention",
            "Use FusedSDPA for attention",
            "from habana_frameworks.torch.hpex.kernels import FusedSDPA\n"
            "output = FusedSDPA.apply(query, key, value, mask, dropout, is_causal, scale)",
            during=fused.fused_attention,
            by_hand="it requires changes to the model's code",
        )


_NORMS = """import torch
from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

def fused(norm):
    return lambda x: FusedRMSNorm.apply(x, norm.weight.to(x.dtype), {epsilon})

for norm in {name}.modules():
    if type(norm).__name__ == "{kind}":
        norm.forward = fused(norm)"""


def _epsilon_code(norms: Sequence[nn.Module]) -> str:
    names = {fused.epsilon_name(norm) for norm in norms}
    own = next((f"norm.{name}" for name in sorted(filter(None, names))), "")
    if None not in names:
        return own
    # This is PyTorch's default.
    default = "torch.finfo(torch.float32).eps"
    return f"{own} or {default}" if own else default
