"""Read DeepSpeed's configuration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from hpu_magic.estimates.errors import EstimateError

AUTO = "auto"
"""A value that transformers sets when training starts."""

# Options that change the memory of a step in ways that are not estimated.
_NOT_ESTIMATED = (
    "zenflow",
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
    "stage3_use_all_reduce_for_fetch_params",
    "stage3_allgather_sequential",
    "stage3_module_granularity_threshold",
    "leaf_module",
)
_OPTIMIZERS = {"adam": "fusedadamw", "adamw": "fusedadamw"}
"""Maps the optimizers that DeepSpeed runs with an operator for cards to the vendor's optimizer."""


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
        """The dtype of an estimate; fp16 needs the memory of bf16."""
        return "bf16" if self.half else "fp32"


def check(
    configuration: Configuration, *, train: bool, parallel: str | None, dtype: str | None
) -> None:
    """Raise `EstimateError` if other arguments of an estimate contradict the configuration."""
    if not train:
        raise EstimateError("deepspeed is only supported for training: omit it, or train=False.")
    if parallel is not None:
        raise EstimateError(
            f"parallel={parallel!r} cannot be combined with deepspeed, whose configuration "
            f"contains the ZeRO stage ({configuration.stage}): omit parallel."
        )
    possible = ("bf16", "fp8") if configuration.half else ("fp32", "bf16-mixed")
    if dtype is not None and dtype not in possible:
        has = "enables bf16 or fp16" if configuration.half else "does not enable bf16 or fp16"
        raise EstimateError(
            f"dtype={dtype!r} contradicts the DeepSpeed configuration, which {has}: use "
            f"{' or '.join(map(repr, possible))}, or omit dtype."
        )


def read(source: object, model: nn.Module, *, accumulate: int = 1) -> Configuration:
    """Return the configuration in a dict or a JSON file.

    As in transformers, sizes that are ``"auto"`` are derived from the hidden size of the model.
    Other options that are ``"auto"`` count as missing. ``accumulate`` is the number of batches per
    optimizer step if the configuration does not contain it.

    Raises `EstimateError` if the file cannot be read, or if a value is invalid or not supported.
    """
    found = _loaded(source)
    zero = _section(found, "zero_optimization")
    stage = _number(zero, "zero_optimization", "stage", 0, most=3)
    for name in _NOT_ESTIMATED:
        if zero.get(name):
            raise EstimateError(
                f"zero_optimization.{name} in the DeepSpeed configuration is not supported by "
                "estimates: remove it."
            )
    if _number(zero, "zero_optimization", "zero_hpz_partition_size", 1) > 1:
        raise EstimateError(
            "zero_optimization.zero_hpz_partition_size in the DeepSpeed configuration is not "
            "supported by estimates: use 1."
        )
    half = any(_enabled(found, name) for name in ("bf16", "bfloat16", "fp16"))
    _check_dtypes(found, half)
    overlap = zero.get("overlap_comm")
    return Configuration(
        stage=stage,
        half=half,
        accumulate=_number(found, "", "gradient_accumulation_steps", accumulate),
        optimizer=_optimizer(found),
        contiguous_gradients=bool(zero.get("contiguous_gradients", True)),
        reduce_scatter=bool(zero.get("reduce_scatter", True)),
        overlap_comm=stage == 3 if overlap in (None, AUTO) else bool(overlap),
        offload_optimizer=_offloads(zero, "offload_optimizer") and stage > 0,
        offload_param=_offloads(zero, "offload_param") and stage == 3,
        **_sizes(zero, model),
    )


def _sizes(zero: Mapping[str, Any], model: nn.Module) -> dict[str, int]:
    """Return the sizes of buffers and thresholds."""
    hidden = getattr(getattr(model, "config", None), "hidden_size", None)
    automatic = {}
    if isinstance(hidden, int):
        automatic = {
            "reduce_bucket_size": hidden * hidden,
            "prefetch_bucket_size": int(0.9 * hidden * hidden),
            "param_persistence_threshold": 10 * hidden,
        }
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
        key = name if name in zero else f"stage3_{name}"
        if zero.get(key) == AUTO:
            sizes[name] = automatic.get(name, default)
        else:
            sizes[name] = _number(zero, "zero_optimization", key, default)
    return sizes


def _loaded(source: object) -> Mapping[str, Any]:
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


def _section(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = found.get(name) or {}
    if not isinstance(section, Mapping):
        raise EstimateError(
            f"{name}={section!r} in the DeepSpeed configuration must be an object with options."
        )
    return section


def _number(
    section: Mapping[str, Any], path: str, name: str, default: int, most: int = sys.maxsize
) -> int:
    value = section.get(name, default)
    if value == AUTO:
        return default
    # DeepSpeed also accepts 5e8, which is a float in JSON.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        value = None
    if value is None or not 0 <= value <= most:
        raise EstimateError(
            f"{path}{'.' if path else ''}{name}={section[name]!r} in the DeepSpeed configuration "
            f"must be an integer from 0{f' to {most}' if most < sys.maxsize else ''}."
        )
    return int(value)


def _enabled(found: Mapping[str, Any], name: str) -> bool:
    return _section(found, name).get("enabled") is True


def _check_dtypes(found: Mapping[str, Any], half: bool) -> None:
    kept = _section(found, "data_types").get("grad_accum_dtype")
    own = ("bf16", "bfloat16", "fp16") if half else ("fp32", "float32")
    if kept not in (None, AUTO, *own):
        raise EstimateError(
            f"data_types.grad_accum_dtype={kept!r} in the DeepSpeed configuration differs from "
            "the dtype of the weights, which is not supported by estimates: remove it."
        )
    if _enabled(found, "torch_autocast"):
        raise EstimateError(
            "torch_autocast in the DeepSpeed configuration is not supported by estimates: use bf16."
        )


def _optimizer(found: Mapping[str, Any]) -> str | None:
    section = _section(found, "optimizer")
    kind = section.get("type")
    if not isinstance(kind, str):
        return None
    name = kind.lower()
    if _section(section, "params").get("torch_adam"):
        return name
    return _OPTIMIZERS.get(name, name)


def _offloads(zero: Mapping[str, Any], name: str) -> bool:
    section = _section(zero, name)
    if section.get("ratio", 1) != 1:
        raise EstimateError(
            f"zero_optimization.{name}.ratio in the DeepSpeed configuration is not supported by "
            "estimates: remove it."
        )
    return section.get("device") in ("cpu", "nvme")
