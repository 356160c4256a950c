"""Functions that query the bridge (fallbacks, graphs, tensor addresses) or write to its log."""

from __future__ import annotations

import logging

from habana_frameworks.torch import _flags

import torch
from hpu_magic.simulator import engine

_logger = logging.getLogger("habana_frameworks.torch")


def _get_fallback_op_count() -> dict[str, int]:
    """Return the number of CPU fallbacks per operator (``aten::op.overload``)."""
    return dict(engine.load().counters()["cpu_fallback"]["operators"])


def get_tensor_info(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the address and size (bytes) of a tensor's device memory, or None if it has none."""
    if tensor.device.type != "hpu":
        return None
    storage = tensor.untyped_storage()
    return (storage.data_ptr(), storage.nbytes()) if storage.nbytes() else None


def _get_jit_cache_size() -> int:
    """Return the number of graphs in lazy mode's recipe cache.

    The number is 0 in eager mode, which does not use recipes; compiled programs are cached by
    Dynamo.
    """
    return engine.load().recipe_count()


def _clear_jit_cache() -> None:
    """Clear lazy mode's recipe cache, so that each graph is recompiled on its next run."""
    engine.load().clear_recipes()


def _get_shape_agnostic_unsupported_ops() -> set[str]:
    """Return an empty set, because all simulated recipes have fixed shapes."""
    return set()


_get_eager_compiler_unsupported_op_prefixes = _get_shape_agnostic_unsupported_ops


def _is_enabled_lazy_collectives() -> bool:
    """Return whether ``PT_HPU_ENABLE_LAZY_COLLECTIVES`` is set."""
    return _flags.is_on("PT_HPU_ENABLE_LAZY_COLLECTIVES")


def _is_enabled_weight_permute_pass() -> bool:
    """Return False, because the simulator does not permute weights."""
    return False


def _is_enabled_synapse_layout_handling() -> bool:
    """Return True, because the vendor's bridge leaves memory formats to the graph compiler."""
    return True


def _hb_print(msg: str) -> None:
    """Log a message."""
    _logger.info("%s", msg)


_hg_print = _mem_log = _hb_print
