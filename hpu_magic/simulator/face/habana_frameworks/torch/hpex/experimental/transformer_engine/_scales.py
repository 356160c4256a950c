"""Arithmetic for delayed scaling."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch._card_types import E4M3FN_MAX, E5M2_MAX
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import DelayedScaling
from habana_frameworks.torch.hpex.experimental.transformer_engine.utils import FP8TensorMeta

import torch
from torch import distributed

# The inverse of this scale is still a normal number, and bfloat16 can represent both values.
_LARGEST_SCALE = 2.0**126


def largest(dtype: torch.dtype) -> float:
    """Return the largest value of an FP8 dtype on this card."""
    if dtype == torch.float8_e5m2:
        return E5M2_MAX
    return E4M3FN_MAX[hpu.get_device_name()]


def products_take_two_formats() -> bool:
    """Return whether the operands of a matmul may have different FP8 dtypes."""
    return hpu.get_device_name() not in ("GAUDI", "GAUDI2")


def new_meta(tensors: int, history: int, device: torch.device) -> FP8TensorMeta:
    """Return scales of 1 and an empty history.

    The tensors are copied from the host, because a captured step would fill them again in each
    replay.
    """
    like = {"device": "cpu", "dtype": torch.float32}
    ones, empty = torch.ones(tensors, **like), torch.zeros(history, tensors, **like)
    return FP8TensorMeta(ones.to(device), ones.to(device), empty.to(device))


def note_amax(meta: FP8TensorMeta, tensor: int, amax: torch.Tensor) -> None:
    """Record the largest magnitude of a tensor; can be called several times per step."""
    running = meta.amax_history[0, tensor]
    running.copy_(torch.maximum(running, amax.reshape(())))


def reduce_maximum(amaxes: list[torch.Tensor], group: Any) -> None:
    """Replace each amax with its maximum over the processes in `group` (None means all processes).

    `amaxes` are 1D tensors, which must belong to the same modules in all processes.
    """
    if not (amaxes and distributed.is_available() and distributed.is_initialized()):
        return
    if distributed.get_world_size(group) > 1:
        shared = torch.cat(amaxes)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX, group)
        parts = shared.split([len(each) for each in amaxes])
        for amax, maximum in zip(amaxes, parts, strict=True):
            amax.copy_(maximum)


def factor_of(scale: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a scale, rounded to the dtype that casts use, and the inverse of the rounded scale."""
    factor = scale.to(dtype)
    return factor, factor.float().reciprocal()


@torch.autocast("hpu", enabled=False)
def end_step(meta: FP8TensorMeta, dtype: torch.dtype, recipe: DelayedScaling) -> None:
    """Compute scales from the amax history, and shift the history.

    All tensors are updated in place, so that each replay of a captured step updates the same
    history.
    """
    history = meta.amax_history
    amax = history.amax(0) if recipe.amax_compute_algo == "max" else history[0]
    scale = (largest(dtype) / amax / 2.0**recipe.margin).clamp_max(_LARGEST_SCALE)
    meta.scale.copy_(torch.where((amax > 0) & amax.isfinite(), scale, meta.scale))
    meta.scale_inv.copy_(meta.scale.reciprocal())
    history.copy_(history.roll(-1, 0))
    history[0].zero_()


def copied(meta: FP8TensorMeta) -> FP8TensorMeta:
    """Return a copy that later steps do not change."""
    return FP8TensorMeta(**{name: each.clone() for name, each in vars(meta).items()})


@torch.no_grad()
def restore(meta: FP8TensorMeta, saved: FP8TensorMeta) -> None:
    """Restore saved tensors in place, so that replays of a captured step use them."""
    for name, each in vars(saved).items():
        current = getattr(meta, name)
        if current.shape == each.shape:
            current.copy_(each)
        else:
            setattr(meta, name, each.to(current.device, copy=True))


def multiply(meta: FP8TensorMeta, factor: float) -> None:
    meta.scale.mul_(factor)
    meta.scale_inv.div_(factor)


def moved(meta: FP8TensorMeta, device: torch.device) -> FP8TensorMeta:
    """Move `meta` to a device and return it."""
    if meta.scale.device == device:
        return meta
    return FP8TensorMeta(**{name: each.to(device) for name, each in vars(meta).items()})


def with_history_of(meta: FP8TensorMeta, length: int) -> FP8TensorMeta:
    """Resize the history to `length` entries, keep the most recent ones, and return `meta`."""
    history = meta.amax_history
    if len(history) != length:
        kept = history.new_zeros(length, history.shape[1])
        kept[0] = history[0]
        recent = min(len(history), length) - 1
        if recent:
            kept[-recent:] = history[-recent:]
        meta.amax_history = kept
    return meta
