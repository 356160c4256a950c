"""Read DeepSpeed's configuration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from hpu_magic.errors import suggestion
from hpu_magic.estimates.deepspeed.options import (
    AUTO,
    BF16,
    FP16,
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAM,
    REMOVED,
    ZERO,
    Read,
    fields,
    flag,
    integer,
    one_of,
    section,
    value,
    wrong,
)
from hpu_magic.estimates.errors import EstimateError

# Options that change the memory of a step in ways that are not estimated.
_NOT_ESTIMATED = {
    **dict.fromkeys(
        (
            "zenflow",
            "zero_quantized_weights",
            "zero_quantized_nontrainable_weights",
            "zero_quantized_gradients",
            "use_all_reduce_for_fetch_params",
            "allgather_sequential",
            "module_granularity_threshold",
            "leaf_module",
            "parameter_alignment",
        ),
        "remove it",
    ),
    "cpu_offload": 'use "offload_optimizer": {"device": "cpu"}',
    "cpu_offload_param": 'use "offload_param": {"device": "cpu"}',
}
_OPTIMIZERS = {
    "adam": "fusedadamw",
    "adamw": "fusedadamw",
    "adagrad": "adagrad",
    **dict.fromkeys(("lamb", "lion", "muadam", "muadamw", "musgd", "muon")),
}
"""Maps DeepSpeed's optimizers to those of estimates, or to None if they are not supported."""


@dataclass(frozen=True)
class Configuration:
    """The options that determine memory, with DeepSpeed's defaults; sizes are in elements."""

    stage: int = 0
    half: bool = False
    """Whether the weights are in bf16 or fp16, with float32 copies."""
    accumulate: int = 1
    optimizer: str | None = None
    """Name of the optimizer; None if the configuration does not have one."""
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    overlap_comm: bool = False
    reduce_bucket_size: int = 500_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    model_persistence_threshold: int = sys.maxsize
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000
    offload_optimizer: bool = False
    offload_param: bool = False

    @property
    def layout(self) -> str:
        """The layout of an estimate with this ZeRO stage."""
        return f"zero{self.stage}" if self.stage else "ddp"

    @property
    def dtype(self) -> str:
        """The dtype of an estimate; fp16 needs the same memory as bf16."""
        return "bf16" if self.half else "fp32"


def check(
    configuration: Configuration,
    *,
    train: bool,
    parallel: str | None,
    dtype: str | None,
    expert_parallel: int,
) -> None:
    """Raise `EstimateError` if other arguments of an estimate contradict the configuration."""
    if not train:
        raise EstimateError("deepspeed is only supported for training: omit it, or train=False.")
    if parallel is not None:
        raise EstimateError(
            f"parallel={parallel!r} cannot be combined with deepspeed, whose configuration "
            f"contains the ZeRO stage ({configuration.stage}): omit parallel."
        )
    if expert_parallel != 1:
        raise EstimateError(
            f"expert_parallel={expert_parallel!r} cannot be combined with deepspeed: omit one."
        )
    possible = ("bf16", "fp8") if configuration.half else ("fp32", "bf16-mixed")
    if dtype is not None and dtype not in possible:
        has = "enables bf16 or fp16" if configuration.half else "does not enable bf16 or fp16"
        raise EstimateError(
            f"dtype={dtype!r} contradicts the DeepSpeed configuration, which {has}: use "
            f"{' or '.join(map(repr, possible))}, or omit dtype."
        )


def read(source: object, model: nn.Module, *, cards: int, accumulate: int = 1) -> Configuration:
    """Return the configuration in a dict or a JSON file.

    As in transformers, sizes that are ``"auto"`` are derived from the hidden size of the model.
    Other options that are ``"auto"`` count as missing. ``accumulate`` is the number of batches per
    optimizer step if the configuration does not determine it.

    Raises `EstimateError` if the file cannot be read, or if a value is invalid or not supported.
    """
    found = loaded(source)
    _check_removed(found)
    zero = _zero(found)
    stage = zero.get("stage", 0)
    half = _half(found, stage)
    _check_dtypes(found, half)
    _check_parallel(found, stage)
    return Configuration(
        stage=stage,
        half=half is not None,
        accumulate=_accumulate(found, cards, accumulate),
        optimizer=_optimizer(found),
        contiguous_gradients=zero.get("contiguous_gradients", True),
        reduce_scatter=zero.get("reduce_scatter", True),
        overlap_comm=zero.get("overlap_comm", stage == 3),
        offload_optimizer=_offloads(zero, "offload_optimizer", OFFLOAD_OPTIMIZER) and stage > 0,
        offload_param=_offloads(zero, "offload_param", OFFLOAD_PARAM) and stage == 3,
        **_sizes(found, zero, model),
    )


def _check_removed(found: Mapping[str, Any]) -> None:
    for name in REMOVED:
        if name in found:
            raise EstimateError(
                f"{name} in the DeepSpeed configuration is not supported by DeepSpeed 0.19.8: "
                "remove it."
            )


def _zero(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ZeRO without the prefix ``stage3_``."""
    path = "zero_optimization"
    options = section(found, path, ZERO)
    stage = found.get(path, {}).get("stage")
    if stage == AUTO:
        raise wrong(f"{path}.stage", stage, "must be an integer from 0 to 3")
    zero = {}
    for name, given in options.items():
        plain = name.removeprefix("stage3_") if name.removeprefix("stage3_") in ZERO else name
        if plain in zero:
            raise EstimateError(
                f"{path} in the DeepSpeed configuration contains both {plain} and "
                f"stage3_{plain}: remove one of them."
            )
        zero[plain] = given
        if given and plain in _NOT_ESTIMATED:
            raise EstimateError(
                f"{path}.{name} in the DeepSpeed configuration is not supported by estimates: "
                f"{_NOT_ESTIMATED[plain]}."
            )
    if zero.get("zero_hpz_partition_size", 1) > 1:
        raise EstimateError(
            f"{path}.zero_hpz_partition_size in the DeepSpeed configuration is not supported by "
            "estimates: use 1."
        )
    if not zero.get("compute_grad_norm", True) and zero.get("stage", 0) not in (1, 2):
        raise wrong(f"{path}.compute_grad_norm", False, "requires ZeRO stage 1 or 2: remove it")
    return zero


def _sizes(found: Mapping[str, Any], zero: Mapping[str, Any], model: nn.Module) -> dict[str, int]:
    """Return the sizes of buffers and thresholds."""
    hidden = getattr(getattr(model, "config", None), "hidden_size", None)
    automatic = {}
    if isinstance(hidden, int):
        automatic = {
            "reduce_bucket_size": hidden * hidden,
            "prefetch_bucket_size": int(0.9 * hidden * hidden),
            "param_persistence_threshold": 10 * hidden,
        }
    given = found.get("zero_optimization", {})
    sizes = {}
    for name in (
        "reduce_bucket_size",
        "prefetch_bucket_size",
        "param_persistence_threshold",
        "model_persistence_threshold",
        "max_live_parameters",
        "max_reuse_distance",
        "sub_group_size",
    ):
        default = getattr(Configuration, name)
        if AUTO in (given.get(name), given.get(f"stage3_{name}")):
            default = automatic.get(name, default)
        sizes[name] = zero.get(name, default)
    return sizes


def loaded(source: object) -> Mapping[str, Any]:
    """Return the content of a configuration, a dict or a JSON file, without checking values.

    Raises `EstimateError` if the file cannot be read.
    """
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str | os.PathLike):
        raise EstimateError(
            f"deepspeed is a {type(source).__name__}: pass DeepSpeed's configuration, a dict or "
            "the path of a JSON file."
        )
    try:
        with open(source, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise EstimateError(
            f"The DeepSpeed configuration {str(source)!r} cannot be read ({error.strerror}): pass "
            "the path of a JSON file."
        ) from None
    except ValueError as error:
        raise EstimateError(
            f"The DeepSpeed configuration {str(source)!r} is not valid JSON ({error}): correct it."
        ) from None
    if not isinstance(found, dict):
        raise EstimateError(
            f"The DeepSpeed configuration {str(source)!r} contains a {type(found).__name__}, but "
            "must contain an object."
        )
    return found


def _accumulate(found: Mapping[str, Any], cards: int, accumulate: int) -> int:
    """Return the number of batches per optimizer step.

    As in DeepSpeed, the number depends on the sizes of the entire batch and of one card's batch.
    """
    train, micro, steps = (
        value(found, name, integer(1))
        for name in (
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
        )
    )
    if train is None:
        return steps or accumulate
    factors = {"cards": cards}
    if micro:
        factors["train_micro_batch_size_per_gpu"] = micro
    if steps:
        factors["gradient_accumulation_steps"] = steps
    size = prod(factors.values())
    exact = micro and steps
    if train != size if exact else train % size:
        multiples = [each for each in (train // size * size, train // size * size + size) if each]
        product = " x ".join(f"{name}={factor}" for name, factor in factors.items())
        raise wrong(
            "train_batch_size",
            train,
            f"is not {'' if exact else 'a multiple of '}{product}: use "
            f"{size if exact else ' or '.join(map(str, multiples))}",
        )
    return steps or (train // size if micro else accumulate)


def _half(found: Mapping[str, Any], stage: int) -> str | None:
    """Return ``"bf16"`` or ``"fp16"`` if the weights have this dtype."""
    sections = {
        name: section(found, name, FP16 if name == "fp16" else BF16)
        for name in ("fp16", "bf16" if found.get("bf16") is not None else "bfloat16")
    }
    enabled = [name for name, options in sections.items() if options.get("enabled")]
    if len(enabled) > 1:
        raise EstimateError(
            f"The DeepSpeed configuration enables {' and '.join(enabled)}: enable only one of them."
        )
    for name, options in sections.items():
        for option in ("master_weights_and_grads", "optimizer_states"):
            if options.get(f"{name}_{option}"):
                raise EstimateError(
                    f"{name}.{name}_{option} in the DeepSpeed configuration is not supported by "
                    "estimates: remove it."
                )
    return enabled[0].replace("bfloat16", "bf16") if enabled else None


def _check_dtypes(found: Mapping[str, Any], half: str | None) -> None:
    types = value(found, "data_types", fields) or {}
    own = {None: ("fp32", "float32", "float"), "bf16": ("bf16", "bfloat16")}.get(
        half, ("fp16", "float16", "half")
    )
    for path, name, given in (
        ("data_types.", "grad_accum_dtype", types.get("grad_accum_dtype")),
        ("data_types.", "param_dtype", types.get("param_dtype")),
        ("", "communication_data_type", found.get("communication_data_type")),
    ):
        if given not in (None, AUTO, *own):
            raise wrong(
                f"{path}{name}",
                given,
                "differs from the dtype of the weights, which is not supported by estimates: "
                "remove it",
            )
    autocast = value(found, "torch_autocast", fields) or {}
    if value(autocast, "enabled", flag, "torch_autocast"):
        raise EstimateError(
            "torch_autocast in the DeepSpeed configuration is not supported by estimates: use bf16."
        )


def _check_parallel(found: Mapping[str, Any], stage: int) -> None:
    """Refuse options that distribute the model or reduce gradients in other ways."""
    reduction = value(found, "gradient_allreduce_op", one_of("mean", "sum"))
    if reduction == "sum" and stage == 3:
        raise wrong("gradient_allreduce_op", "sum", "is not supported by ZeRO stage 3: remove it")
    tensor = value(found, "tensor_parallel", fields) or {}
    for section_name, options, name in (
        ("", found, "sequence_parallel_size"),
        ("tensor_parallel", tensor, "autotp_size"),
    ):
        if (value(options, name, integer(), section_name) or 1) > 1:
            path = f"{section_name}.{name}" if section_name else name
            raise wrong(path, options[name], "is not supported by estimates: remove it")
    compiled = value(found, "compile", fields) or {}
    if value(compiled, "deepcompile", flag, "compile"):
        raise wrong("compile.deepcompile", True, "is not supported by estimates: remove it")


def _optimizer(found: Mapping[str, Any]) -> str | None:
    section = value(found, "optimizer", fields) or {}
    kind = section.get("type")
    if kind is None:
        return None
    params = value(section, "params", fields, "optimizer") or {}
    if "max_grad_norm" in params:
        raise EstimateError(
            "optimizer.params.max_grad_norm in the DeepSpeed configuration is not supported by "
            "DeepSpeed: use gradient_clipping."
        )
    name = str(kind).lower()
    # Unlike PyTorch's optimizer names, DeepSpeed's are not case-sensitive.
    if name in _OPTIMIZERS and isinstance(kind, str):
        estimated = _OPTIMIZERS[name]
        torch_adam = value(params, "torch_adam", flag, "optimizer.params")
        if estimated:
            return name if torch_adam else estimated
        raise wrong("optimizer.type", kind, "is not supported by estimates: use 'AdamW'")
    classes = {
        each.lower(): each
        for each, found_class in vars(torch.optim).items()
        if isinstance(found_class, type) and found_class is not torch.optim.Optimizer
    }
    if kind not in classes.values():
        close = suggestion(classes.get(name, str(kind)), classes.values()) or "use 'AdamW'."
        raise EstimateError(
            f"optimizer.type={kind!r} in the DeepSpeed configuration is not an optimizer of "
            f"DeepSpeed or PyTorch: {close}"
        )
    return name


def _offloads(zero: Mapping[str, Any], name: str, options: Mapping[str, Read]) -> bool:
    path = "zero_optimization"
    offload = section(zero, name, options, path)
    if offload.get("ratio", 1) != 1:
        raise EstimateError(
            f"{path}.{name}.ratio in the DeepSpeed configuration is not supported by estimates: "
            "remove it."
        )
    device = offload.get("device", "none")
    if device == "nvme" and zero.get("stage") == 3:
        raise wrong(
            f"{path}.{name}.device",
            device,
            "is not possible, because DeepSpeed has no asynchronous I/O operator for hpu: use "
            "'cpu'",
        )
    return bool(device != "none")
