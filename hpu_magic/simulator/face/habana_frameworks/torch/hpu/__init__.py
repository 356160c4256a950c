"""The ``torch.hpu`` module."""

from __future__ import annotations

import os
import sys
from typing import Any

from habana_frameworks.torch import _first_generation
from habana_frameworks.torch.hpu import _utils
from habana_frameworks.torch.hpu._compiler_options import (
    disable_const_section_serialization,
    disable_dynamic_shape,
    disable_inference_mode,
    disable_matmul3d_2d_reshape,
    disable_optim_output_sif,
    disable_quantization,
    enable_const_section_serialization,
    enable_dynamic_shape,
    enable_inference_mode,
    enable_matmul3d_2d_reshape,
    enable_optim_output_sif,
    enable_quantization,
    enable_recompute_sdp,
    get_dynamic_shape_status,
    get_sync_debug_mode,
    is_inference_mode_enabled,
    is_matmul3d_2d_reshape_enabled,
    recompute_sdp_enabled,
    sdp_kernel,
    set_mark_non_scale_const,
    set_mark_scale_const,
    set_sync_debug_mode,
)
from habana_frameworks.torch.hpu._typed_tensors import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from habana_frameworks.torch.hpu._utils import _get_device_index
from habana_frameworks.torch.hpu.events import Event
from habana_frameworks.torch.hpu.graphs import (
    CachedParams,
    HPUGraph,
    ModuleCacher,
    TensorPacker,
    copy_to,
    graph,
    input_hash,
    is_current_stream_capturing,
    make_graphed_callables,
    wrap_in_hpu_graph,
    wrap_in_hpu_graph_func,
)
from habana_frameworks.torch.hpu.memory import (
    _extended_memory_summary,
    _extended_memory_summary_dict,
    _get_hlml_shared_object_name,
    formatted_memory_stats,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    memory_usage,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from habana_frameworks.torch.hpu.metrics import (
    MetricNotFound,
    metric_global,
    metric_localcontext,
    metrics_dump,
)
from habana_frameworks.torch.hpu.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_ctx,
    set_rng_state,
    set_rng_state_all,
    unset_rng_ctx,
)
from habana_frameworks.torch.hpu.streams import (
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_info,
    record_stream,
    set_stream,
    stream,
)

import torch
from hpu_magic.simulator import cards, engine
from hpu_magic.simulator.cards.configuration import DeviceType
from hpu_magic.simulator.release import DRIVER


def init() -> None:
    """Acquire the card unless this process already has one."""
    engine.load().acquire()


def _lazy_init() -> None:
    """Do nothing; the first allocation acquires the card."""


def _is_in_bad_fork() -> bool:
    return cards.in_bad_fork()


def is_initialized() -> bool:
    """Return whether this process has acquired a card."""
    return bool(engine.load().is_acquired())


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # PyTorch's checkpointing reads it
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_available() -> bool:
    """Return whether the machine has any cards; does not acquire a card."""
    return device_count() > 0


def device_count() -> int:
    """Return the number of cards in the machine, including busy cards; does not acquire a card."""
    return cards.device_count()


def current_device() -> int:
    """Acquire the card and return its index, which is 0 in every process."""
    init()
    return 0


def set_device(device: Any) -> None:
    """Select the card to acquire, by its index in ``HABANA_VISIBLE_MODULES``.

    Raises AssertionError if the card does not exist or this process already uses another card.
    """
    index = _utils.named_index(device) or 0
    listed = os.environ.get("HABANA_VISIBLE_MODULES")
    modules = (
        [int(module) for module in listed.split(",")] if listed else list(range(device_count()))
    )
    if index not in range(len(modules)):
        raise AssertionError(
            f"Trying to open device with idx={index} when only {modules} are available"
        )
    module = modules[index]
    card = cards.acquired()
    current = card.module_id if card else os.environ.get("HLS_MODULE_ID")
    if current is not None and int(current) != module and (index != 0 or card is None):
        raise AssertionError(
            f"Requested module_id={module} is different from current_module_id={current} "
            "which was previously set."
        )
    if card is None and (listed or index != 0):
        os.environ["HLS_MODULE_ID"] = str(module)
    if index != 0:
        cards.choose(index)


class device:
    """Context manager that selects the process's only device.

    If the process has not acquired a card yet, the first explicit index selects the card. Raises
    AssertionError if this process already uses another card.
    """

    def __init__(self, device: Any) -> None:
        index = _utils.named_index(device) or 0
        if index not in (-1, 0) and str(index) != os.environ.get("HLS_MODULE_ID"):
            try:
                cards.choose(index)
            except RuntimeError as refused:
                raise AssertionError(f"Invalid device id {index}: {refused}") from refused

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


class device_of(device):
    """Context manager that selects the device of a tensor or storage."""

    def __init__(self, obj: Any) -> None:
        super().__init__(0)


def synchronize(device: Any = None) -> None:
    """Execute recorded operations, and wait until the device has finished all work."""
    _check_device(device)
    native = engine.load()
    if native.pending_operations():
        native.mark_step()
    native.wait_for_collectives()
    native.wait_for_card()


def get_device_name(device: Any = None) -> str:
    """Acquire the card and return its generation: GAUDI, GAUDI2 or GAUDI3."""
    _check_device(device)
    init()
    return cards.acquire().generation


def get_device_capability(device: Any = None) -> str:
    """Return the driver version."""
    _check_device(device)
    return DRIVER


def get_device_properties(device: Any = None) -> str:
    """Acquire the card, and return its properties in the vendor's format, ``(key=value, ...)``."""
    name = get_device_name(device)
    card = cards.acquire()
    sram_mib, tpcs = {"GAUDI": (24, 8), "GAUDI2": (48, 24), "GAUDI3": (96, 64)}[name]
    return (
        f"(sramBaseAddress=0, dramBaseAddress=0, sramSize={sram_mib << 20}, "
        f"dramSize={card.capacity}, tpcEnabledMask={(1 << tpcs) - 1}, dramEnabled=1, fd=-1, "
        f"device_id={card.module_id}, device_type={int(DeviceType[name])})"
    )


def can_device_access_peer(device: int, peer: int) -> bool:
    """Return True, because all cards in a machine are connected.

    Raises AssertionError if a card does not exist or if both indices are equal.
    """
    if device == peer or not {device, peer} <= set(range(device_count())):
        raise AssertionError("Invalid device id")
    return True


def get_arch_list() -> list[str]:
    """Return a list with the generation of the card."""
    return [get_device_name()]


def get_gencode_flags() -> str:
    """Return an empty string, because the device has no compiler flags."""
    return ""


def is_bf16_supported() -> bool:
    """Return whether the device supports bfloat16, which all generations do."""
    return is_available()


def utilization(device: Any = None) -> Any:
    """Raise RuntimeError, because simulated cards have no utilization counter."""
    raise RuntimeError(
        "Simulated cards have no utilization counter; only a real card reports its utilization."
    )


def setDeterministic(value: bool) -> None:
    """Deprecated by the vendor: use `torch.use_deterministic_algorithms`."""
    torch.use_deterministic_algorithms(value)


def getDeterministic() -> bool:
    """Deprecated by the vendor: use `torch.are_deterministic_algorithms_enabled`."""
    return torch.are_deterministic_algorithms_enabled()


def set_autocast_hpu_enabled(enabled: bool) -> None:
    """Enable or disable autocast on ``hpu`` in this thread."""
    torch.set_autocast_enabled("hpu", enabled)


def is_autocast_hpu_enabled() -> bool:
    """Return whether autocast on ``hpu`` is enabled in this thread."""
    return torch.is_autocast_enabled("hpu")


def set_autocast_hpu_dtype(dtype: torch.dtype) -> None:
    """Set the dtype to which autocast casts on ``hpu``.

    On a first-generation card, float16 only shows a warning.
    """
    if not _first_generation.refuses_autocast_type(dtype):
        torch.set_autocast_dtype("hpu", dtype)


def get_autocast_hpu_dtype() -> torch.dtype:
    """Return the dtype to which autocast casts on ``hpu``."""
    return torch.get_autocast_dtype("hpu")


def _check_device(device: Any) -> None:
    if device is not None and (_utils.named_index(device) or 0) not in range(device_count()):
        raise AssertionError("Invalid device id")


def _share_submodules() -> None:
    """Make imports such as ``torch.hpu.memory`` return these modules instead of copies."""
    for name in ("events", "graphs", "memory", "metrics", "random", "streams"):
        sys.modules[f"torch.hpu.{name}"] = sys.modules[f"{__name__}.{name}"]


hpu = sys.modules[__name__]
torch._register_device_module("hpu", hpu)
_share_submodules()
