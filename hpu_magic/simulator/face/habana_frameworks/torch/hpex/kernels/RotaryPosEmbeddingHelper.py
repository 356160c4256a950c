"""Rotary position embeddings in several variants.

``p`` contains queries or keys; ``cos`` and ``sin`` have one value per position and channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

from habana_frameworks.torch._once_differentiable import once_differentiable

import torch

Gradients = tuple[torch.Tensor | None, ...]


class RotaryPosEmbeddingMode(Enum):
    """How channels are paired for rotation: one from each half, or neighboring channels."""

    BLOCKWISE = 0
    PAIRWISE = 1


_BLOCKWISE = RotaryPosEmbeddingMode.BLOCKWISE


def _matched(
    p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Convert the tensors to float32 if any of them is float32, otherwise to the dtype of `p`."""
    in_float = torch.float32 in (p.dtype, cos.dtype, sin.dtype)
    dtype = torch.float32 if in_float else p.dtype
    return p.to(dtype), cos.to(dtype), sin.to(dtype)


def _rotate(
    rotary: Callable[..., torch.Tensor],
    p: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    offset: int = 0,
    mode: RotaryPosEmbeddingMode = _BLOCKWISE,
) -> torch.Tensor:
    """Rotate with the forward or the backward operator."""
    p, cos, sin = _matched(p, cos, sin)
    return rotary(p, sin, cos, position_ids, offset, mode.value)


def parse_rope_cache(
    p: torch.Tensor, rope_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cosine and sine for each channel that a cache of (cos, sin) pairs rotates.

    Parameters
    ----------
    p : torch.Tensor
        Tensor of shape [length, batch, heads, channels].
    rope_cache : torch.Tensor
        Tensor of shape [positions, ..., pairs, 2], with each cosine before its sine. The first
        `length` rows contain the angles of each position, either shared by all samples or separate
        for each sample. ValueError is raised for other caches.

    Returns
    -------
    tuple of torch.Tensor
        Both have the shape [length, batch or 1, 1, 2 * pairs] and the dtype of `p`.
    """
    _check_cache(p, rope_cache)
    length, pairs = p.shape[0], rope_cache.shape[-2]
    of_pairs = rope_cache[:length].reshape(length, -1, 1, pairs, 2).to(p.dtype)
    cos, sin = (of_pairs[..., i].repeat_interleave(2, dim=-1) for i in range(2))
    return cos, sin


def _check_cache(p: torch.Tensor, rope_cache: torch.Tensor) -> None:
    cache = f"The rope_cache of shape {list(rope_cache.shape)}"
    if p.dim() != 4 or rope_cache.dim() < 3 or rope_cache.shape[-1] != 2:
        raise ValueError(
            f"{cache} does not match p of shape {list(p.shape)}; pass a cache of shape [positions, "
            "..., pairs, 2], with cosines before sines, and p of shape [length, batch, heads, "
            "channels]."
        )
    length, batch, _, channels = p.shape
    pairs = rope_cache.shape[-2]
    if 2 * pairs > channels:
        raise ValueError(
            f"{cache} rotates {2 * pairs} channels, but p has {channels}; pass at most "
            f"{channels // 2} pairs (the other channels do not change)."
        )
    angles = math.prod(rope_cache[:length].shape[:-2])
    if angles not in (length, length * batch):
        raise ValueError(
            f"{cache} has angles for {angles} positions in its first {length} rows, but p has "
            f"{length} positions in a batch of {batch}; pass angles for {length} or "
            f"{length * batch} positions."
        )


def _rotate_first(
    p: torch.Tensor, rope_cache: torch.Tensor, *, backward: bool = False
) -> torch.Tensor:
    """Rotate the channels that a cache covers, and leave the other channels unchanged."""
    cos, sin = parse_rope_cache(p, rope_cache)
    channels = cos.shape[-1]
    hpu = torch.ops.hpu
    rotary = hpu.rotary_pos_embedding_backward if backward else hpu.rotary_pos_embedding
    pairwise = RotaryPosEmbeddingMode.PAIRWISE.value
    rotated = rotary(p[..., :channels].contiguous(), sin, cos, None, 0, pairwise)
    return torch.cat([rotated, p[..., channels:]], dim=-1)


def apply_rotary_pos_emb(*args: Any) -> torch.Tensor:
    """Rotate queries or keys by the angles in a cache, ``(p, rope_cache)``, or in cos/sin tables.

    With tables, the arguments are ``(p, cos, sin, position_ids=None, offset=0, mode=BLOCKWISE)``,
    and the function computes in float32 if any of the tensors is float32. `position_ids`, of shape
    [batch, length], select the rows of ``cos`` and ``sin``, and `offset` selects the first column.
    A cache rotates pairs of neighboring channels. Only the classes in this module are
    differentiable.
    """
    if len(args) == 2:
        return _rotate_first(*args)
    return _rotate(torch.ops.hpu.rotary_pos_embedding, *args)


def apply_rotary_pos_emb_bwd(
    p_grad_in: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    offset: int = 0,
    mode: RotaryPosEmbeddingMode = _BLOCKWISE,
) -> torch.Tensor:
    """Return the gradient of ``p``, given the gradient of the output of `apply_rotary_pos_emb`."""
    backward = torch.ops.hpu.rotary_pos_embedding_backward
    return _rotate(backward, p_grad_in, cos, sin, position_ids, offset, mode)


class RotaryPosEmbeddingHelperV1(torch.autograd.Function):
    """``apply(p, cos, sin, offset)``: uses the columns of cos and sin from `offset` onward."""

    @staticmethod
    def forward(
        ctx: Any, p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, offset: int
    ) -> torch.Tensor:
        """Return the rotated tensor."""
        ctx.save_for_backward(cos, sin)
        ctx.offset = offset
        return _rotate(torch.ops.hpu.rotary_pos_embedding, p, cos, sin, None, offset)

    @staticmethod
    @once_differentiable("apply_rotary_pos_emb")
    def backward(ctx: Any, *grads: torch.Tensor) -> Gradients:
        """Return the gradient of ``p``."""
        gradient = apply_rotary_pos_emb_bwd(grads[0], *ctx.saved_tensors, None, ctx.offset)
        return gradient, None, None, None


class RotaryPosEmbeddingHelperV2(torch.autograd.Function):
    """``apply(p, cos, sin, position_ids)``: indexes the rows of cos and sin by `position_ids`."""

    @staticmethod
    def forward(
        ctx: Any, p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position_ids: torch.Tensor
    ) -> torch.Tensor:
        """Return the rotated tensor."""
        ctx.save_for_backward(cos, sin, position_ids)
        return _rotate(torch.ops.hpu.rotary_pos_embedding, p, cos, sin, position_ids)

    @staticmethod
    @once_differentiable("apply_rotary_pos_emb")
    def backward(ctx: Any, *grads: torch.Tensor) -> Gradients:
        """Return the gradient of ``p``."""
        return apply_rotary_pos_emb_bwd(grads[0], *ctx.saved_tensors), None, None, None


class RotaryPosEmbeddingHelperV3(torch.autograd.Function):
    """``apply(p, rope_cache)``: rotates pairs of neighboring channels by the cached angles."""

    @staticmethod
    def forward(ctx: Any, p: torch.Tensor, rope_cache: torch.Tensor) -> torch.Tensor:
        """Return the rotated tensor."""
        ctx.save_for_backward(rope_cache)
        return _rotate_first(p, rope_cache)

    @staticmethod
    @once_differentiable("apply_rotary_pos_emb")
    def backward(ctx: Any, *grads: torch.Tensor) -> Gradients:
        """Return the gradient of ``p``."""
        (rope_cache,) = ctx.saved_tensors
        return _rotate_first(grads[0], rope_cache, backward=True), None
