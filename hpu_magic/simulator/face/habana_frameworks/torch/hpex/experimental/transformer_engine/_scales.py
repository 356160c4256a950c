"""The arithmetic of delayed scaling."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch._bridge import FLOAT8_E4M3FN_LIMIT
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import DelayedScaling
from habana_frameworks.torch.hpex.experimental.transformer_engine.utils import FP8TensorMeta

import torch
from torch import distributed

# Its inverse is a normal number, and bfloat16 has both.
_LARGEST_SCALE = 2.0**126


def largest(dtype: torch.dtype) -> float:
    """Return the largest value of an 8-bit type on this card."""
    if dtype == torch.float8_e5m2:
        return 57344.0
    return FLOAT8_E4M3FN_LIMIT[hpu.get_device_name()]


def products_take_two_formats() -> bool:
    """Tell whether the two factors of a product may be of different 8-bit types."""
    return hpu.get_device_name() not in ("GAUDI", "GAUDI2")


def new_meta(tensors: int, history: int, device: torch.device) -> FP8TensorMeta:
    """Return scales of one and an empty history.

    They are copied from the host: filled in a captured step, each replay would fill them again.
    """
    like = {"device": "cpu", "dtype": torch.float32}
    ones, empty = torch.ones(tensors, **like), torch.zeros(history, tensors, **like)
    return FP8TensorMeta(ones.to(device), ones.to(device), empty.to(device))


def note_amax(meta: FP8TensorMeta, tensor: int, amax: torch.Tensor) -> None:
    """Enter the largest magnitude of a tensor, which may be there several times in a step."""
    running = meta.amax_history[0, tensor]
    running.copy_(torch.maximum(running, amax.reshape(())))


def agree(amaxes: list[torch.Tensor], group: Any) -> None:
    """Put the largest of all processes of a group in the place of each magnitude.

    Parameters
    ----------
    amaxes : list of torch.Tensor
        [tensors] each; the same ones in all of the processes.
    group : torch.distributed.ProcessGroup or None
        None for all processes.
    """
    if not (amaxes and distributed.is_available() and distributed.is_initialized()):
        return
    if distributed.get_world_size(group) > 1:
        shared = torch.cat(amaxes)
        distributed.all_reduce(shared, distributed.ReduceOp.MAX, group)
        for mine, ours in zip(amaxes, shared.split([len(each) for each in amaxes]), strict=True):
            mine.copy_(ours)


def factor_of(scale: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a scale in the type in which casts multiply, and exactly what undoes it."""
    factor = scale.to(dtype)
    return factor, factor.float().reciprocal()


@torch.autocast("hpu", enabled=False)
def end_step(meta: FP8TensorMeta, dtype: torch.dtype, recipe: DelayedScaling) -> None:
    """Compute scales from what was measured, and make room for the next measurement.

    Everything is written in place, so that a captured step goes on at each replay.
    """
    history = meta.amax_history
    amax = history.amax(0) if recipe.amax_compute_algo == "max" else history[0]
    scale = (largest(dtype) / amax / 2.0**recipe.margin).clamp_max(_LARGEST_SCALE)
    meta.scale.copy_(torch.where((amax > 0) & amax.isfinite(), scale, meta.scale))
    meta.scale_inv.copy_(meta.scale.reciprocal())
    history.copy_(history.roll(-1, 0))
    history[0].zero_()


def copied(meta: FP8TensorMeta) -> FP8TensorMeta:
    """Return a copy that later steps leave alone."""
    return FP8TensorMeta(**{name: each.clone() for name, each in vars(meta).items()})


@torch.no_grad()
def restore(meta: FP8TensorMeta, saved: FP8TensorMeta) -> None:
    """Write what was saved in place, so that a captured step continues from there."""
    for name, each in vars(saved).items():
        mine = getattr(meta, name)
        if mine.shape == each.shape:
            mine.copy_(each)
        else:
            setattr(meta, name, each.to(mine.device, copy=True))


def fit(meta: FP8TensorMeta, share: float) -> None:
    """Multiply scales, so that a range becomes that share of itself."""
    meta.scale.mul_(share)
    meta.scale_inv.div_(share)


def moved(meta: FP8TensorMeta, device: torch.device) -> FP8TensorMeta:
    """Return `meta` where the layer computes now."""
    if meta.scale.device == device:
        return meta
    return FP8TensorMeta(**{name: each.to(device) for name, each in vars(meta).items()})


def with_history_of(meta: FP8TensorMeta, length: int) -> FP8TensorMeta:
    """Return `meta` with room for `length` measurements, the most recent of those that it has."""
    history = meta.amax_history
    if len(history) != length:
        kept = history.new_zeros(length, history.shape[1])
        kept[0] = history[0]
        recent = min(len(history), length) - 1
        if recent:
            kept[-recent:] = history[-recent:]
        meta.amax_history = kept
    return meta
