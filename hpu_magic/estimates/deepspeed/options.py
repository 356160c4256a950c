"""The options of DeepSpeed's configuration, and checks of their values.

Names and limits are those of DeepSpeed 0.19.8.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from hpu_magic.errors import suggestion
from hpu_magic.estimates.errors import EstimateError

AUTO = "auto"
"""A value that transformers sets when training starts."""
Read = Callable[[Any], Any]
"""Returns the value of an option; raises `ValueError` with the values that are allowed."""

_FLAGS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


def number(least: float = 0, most: float = math.inf) -> Read:
    """Return a function that checks that a value is a finite number."""

    def read(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most or math.isinf(value):
            raise ValueError(f"a number from {least}{f' to {most}' if most < math.inf else ''}")
        return value

    return read


def integer(least: int = 0, most: int = sys.maxsize) -> Read:
    """Return a function that checks that a value is an integer or a whole float, such as 5e8."""

    def read(value: Any) -> int:
        try:
            if number(least, most)(value) == int(value):
                return int(value)
        except ValueError:
            pass
        raise ValueError(f"an integer from {least}{f' to {most}' if most < sys.maxsize else ''}")

    return read


def one_of(*allowed: str | None) -> Read:
    """Return a function that checks that a value is one of several names."""

    def read(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(repr(each) for each in allowed if each)}")
        return value

    return read


def flag(value: Any) -> bool:
    """Return a Boolean, which may be written as a word, such as "true"."""
    found = _FLAGS.get(str(int(value) if isinstance(value, bool) else value).lower())
    if found is None or not isinstance(value, bool | int | str):
        raise ValueError("true or false")
    return found


def anything(value: Any) -> Any:
    """Return a value that is not checked."""
    return value


def fields(value: Any) -> Mapping[str, Any]:
    """Return an object with options."""
    if not isinstance(value, Mapping):
        raise ValueError("an object with options")
    return value


def optional(read: Read) -> Read:
    """Return a check that also allows null."""
    return lambda value: None if value is None else read(value)


_AT_STAGE_3 = {
    **dict.fromkeys(
        (
            "prefetch_bucket_size",
            "param_persistence_threshold",
            "model_persistence_threshold",
            "max_live_parameters",
            "max_reuse_distance",
        ),
        integer(),
    ),
    "module_granularity_threshold": integer(-sys.maxsize),
    **dict.fromkeys(
        (
            "gather_16bit_weights_on_model_save",
            "use_all_reduce_for_fetch_params",
            "allgather_sequential",
        ),
        flag,
    ),
}
"""Options whose names may begin with ``stage3_``."""
ZERO: Mapping[str, Read] = {
    "stage": integer(0, 3),
    "reduce_bucket_size": integer(1),
    **dict.fromkeys(
        ("allgather_bucket_size", "sub_group_size", "zero_hpz_partition_size"), integer()
    ),
    **dict.fromkeys(
        (
            "allgather_partitions",
            "compute_grad_norm",
            "contiguous_gradients",
            "elastic_checkpoint",
            "enable_sanity_checks",
            "ignore_unused_parameters",
            "legacy_stage1",
            "load_from_fp32_weights",
            "log_trace_cache_warnings",
            "memory_efficient_linear",
            "override_module_apply",
            "parameter_alignment",
            "pipeline_loading_checkpoint",
            "reduce_scatter",
            "round_robin_gradients",
            "save_muon_momentum_buffer_in_memory",
            "stage3_gather_fp16_weights_on_model_save",
            "use_multi_rank_bucket_allreduce",
            "zero_quantized_gradients",
            "zero_quantized_nontrainable_weights",
            "zero_quantized_weights",
        ),
        flag,
    ),
    **dict.fromkeys(
        ("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory", "overlap_comm"),
        optional(flag),
    ),
    **dict.fromkeys(("offload_optimizer", "offload_param", "zenflow"), optional(fields)),
    "leaf_module": fields,
    **_AT_STAGE_3,
    **{f"stage3_{name}": read for name, read in _AT_STAGE_3.items()},
}
_OFFLOAD: Mapping[str, Read] = {
    "device": one_of("none", "cpu", "nvme"),
    "nvme_path": anything,
    "buffer_count": integer(),
    "pin_memory": flag,
}
OFFLOAD_PARAM: Mapping[str, Read] = {
    **_OFFLOAD,
    "buffer_size": integer(),
    "max_in_cpu": integer(),
}
OFFLOAD_OPTIMIZER: Mapping[str, Read] = {
    **_OFFLOAD,
    **dict.fromkeys(("fast_init", "pipeline_read", "pipeline_write", "super_offload"), flag),
    **dict.fromkeys(("cpuadam_cores_perc", "ratio"), number(0, 1)),
}
BF16: Mapping[str, Read] = dict.fromkeys(
    (
        "enabled",
        "immediate_grad_update",
        "check_grad_overflow",
        "bf16_master_weights_and_grads",
        "bf16_optimizer_states",
    ),
    flag,
)
FP16: Mapping[str, Read] = {
    **dict.fromkeys(
        ("enabled", "auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads"), flag
    ),
    **dict.fromkeys(
        ("initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"),
        integer(-sys.maxsize),
    ),
    "loss_scale": number(),
}
REMOVED = (
    "amp",
    "compression_training",
    "curriculum_learning",
    "eigenvalue",
    "elasticity",
    "graph_harvesting",
    "nebula",
    "progressive_layer_drop",
    "quantize_training",
    "sparse_attention",
    "sparse_gradients",
)
"""Sections of earlier releases."""


def value(found: Mapping[str, Any], name: str, read: Read, path: str = "") -> Any:
    """Return the value of an option; None if it is missing or automatic.

    ``path`` is the name of the object that contains the option. Raises `EstimateError` if the value
    is invalid.
    """
    given = found.get(name, AUTO)
    if isinstance(given, str) and given == AUTO:
        return None
    try:
        return read(given)
    except ValueError as error:
        raise wrong(f"{path}{'.' if path else ''}{name}", given, f"must be {error}") from None


def section(
    found: Mapping[str, Any], name: str, options: Mapping[str, Read], path: str = ""
) -> dict[str, Any]:
    """Return the values of an object's options without those that are missing or automatic.

    Raises `EstimateError` if DeepSpeed does not have an option, or if a value is invalid.
    """
    given = value(found, name, fields, path) or {}
    path = f"{path}.{name}" if path else name
    for each in given:
        if each not in options:
            close = suggestion(str(each), options) or "remove it."
            raise EstimateError(f"{path}.{each} is not an option of DeepSpeed 0.19.8: {close}")
    read = {each: value(given, each, options[each], path) for each in given}
    return {each: found for each, found in read.items() if found is not None}


def wrong(path: str, given: object, fix: str) -> EstimateError:
    """Return the error for an invalid value."""
    return EstimateError(f"{path}={given!r} in the DeepSpeed configuration {fix}.")
