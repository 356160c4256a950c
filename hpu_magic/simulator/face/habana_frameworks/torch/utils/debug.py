"""Looks behind the device: what ran on the CPU instead, and where a tensor lives."""

from __future__ import annotations

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
