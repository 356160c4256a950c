"""Queries of the bridge: operators that fell back, graphs that it keeps, a tensor's memory."""

from __future__ import annotations

import os

import torch
from hpu_magic.simulator import engine


def _get_fallback_op_count() -> dict[str, int]:
    """Return how often each operator (``aten::op.overload``) fell back to the CPU."""
    return dict(engine.load().counters()["cpu_fallback"]["operators"])


def get_tensor_info(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return address and size in bytes of a tensor's memory on the device, or None without any."""
    if tensor.device.type != "hpu":
        return None
    storage = tensor.untyped_storage()
    return (storage.data_ptr(), storage.nbytes()) if storage.nbytes() else None


def _get_jit_cache_size() -> int:
    """Return the number of different graphs that lazy mode has compiled and keeps recipes of.

    In eager mode it is 0: operators run without recipes, and compiled programs are Dynamo's.
    """
    return engine.load().compiled_graphs()


def _clear_jit_cache() -> None:
    """Forget the recipes of lazy mode: each graph compiles again when it next runs."""
    engine.load().clear_compiled_graphs()


def _get_shape_agnostic_unsupported_ops() -> set[str]:
    """Return the operators without a recipe for all shapes: none, as none here has recipes."""
    return set()


def _get_eager_compiler_unsupported_op_prefixes() -> set[str]:
    """Return the operators that the eager compiler refuses: none, as there is no such compiler."""
    return set()


def _is_enabled_lazy_collectives() -> bool:
    """Tell whether ``PT_HPU_ENABLE_LAZY_COLLECTIVES`` is set."""
    return os.environ.get("PT_HPU_ENABLE_LAZY_COLLECTIVES", "").strip().lower() in ("1", "true")


def _is_enabled_weight_permute_pass() -> bool:
    """Return False: no weights are permuted."""
    return False


def _is_enabled_synapse_layout_handling() -> bool:
    """Return True, as the vendor's bridge does: memory formats are not its own concern."""
    return True
