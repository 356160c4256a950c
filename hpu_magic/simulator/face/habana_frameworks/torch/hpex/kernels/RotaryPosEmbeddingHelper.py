"""Rotary position embedding in the forms that models use.

``p`` is what is turned, queries or keys; ``cos`` and ``sin`` have an angle for each position and
channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
from torch.autograd.function import once_differentiable

Gradients = tuple[torch.Tensor | None, ...]


class RotaryPosEmbeddingMode(Enum):
    """Which channels are turned together: those of two halves, or neighbours."""

    BLOCKWISE = 0
    PAIRWISE = 1


_BLOCKWISE = RotaryPosEmbeddingMode.BLOCKWISE


def _matched(
    p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All in float32 if any is, else in the type of `p`."""
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
    """Turn by one of the two operators, forward or backward."""
    p, cos, sin = _matched(p, cos, sin)
    return rotary(p, sin, cos, position_ids, offset, mode.value)


def parse_rope_cache(
    p: torch.Tensor, rope_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give cos and sin for each channel that a cache of pairs turns.

    Parameters
    ----------
    p : torch.Tensor
        Of shape [length, batch, heads, channels].
    rope_cache : torch.Tensor
        Of shape [positions, ..., pairs, 2], cosines before sines. Its first `length` rows are
        used; they hold the angles of each position for the batch, or for one sample.

    Returns
    -------
    tuple of torch.Tensor
        Both of shape [length, batch or 1, 1, 2 * pairs] and of the type of `p`.

    Raises
    ------
    ValueError
        The cache has other than pairs, more channels than `p`, or angles for other positions or
        another batch.
    """
    _check_cache(p, rope_cache)
    length, pairs = p.shape[0], rope_cache.shape[-2]
    of_pairs = rope_cache[:length].reshape(length, -1, 1, pairs, 2).to(p.dtype)
    cos, sin = (of_pairs[..., i].repeat_interleave(2, dim=-1) for i in range(2))
    return cos, sin


def _check_cache(p: torch.Tensor, rope_cache: torch.Tensor) -> None:
    given = f"The rope_cache of shape {list(rope_cache.shape)}"
    if p.dim() != 4 or rope_cache.dim() < 3 or rope_cache.shape[-1] != 2:
        raise ValueError(
            f"{given} does not fit p of shape {list(p.shape)}; give a cache [positions, ..., "
            "pairs, 2], cosines before sines, and p as [length, batch, heads, channels]."
        )
    length, batch, _, channels = p.shape
    pairs = rope_cache.shape[-2]
    if 2 * pairs > channels:
        raise ValueError(
            f"{given} turns {2 * pairs} channels, but p has {channels}; give at most "
            f"{channels // 2} pairs: channels beyond them stay as they are."
        )
    angles = math.prod(rope_cache[:length].shape[:-2])
    if angles not in (length, length * batch):
        raise ValueError(
            f"{given} has angles for {angles} positions in its first {length} rows, but p has "
            f"{length} positions in a batch of {batch}; give {length} or {length * batch}."
        )


def _rotate_first(
    p: torch.Tensor, rope_cache: torch.Tensor, *, backward: bool = False
) -> torch.Tensor:
    """Turn the channels that a cache of pairs has, and hand the others through."""
    cos, sin = parse_rope_cache(p, rope_cache)
    turned = cos.shape[-1]
    rotary = (
        torch.ops.hpu.rotary_pos_embedding_backward
        if backward
        else torch.ops.hpu.rotary_pos_embedding
    )
    pairwise = RotaryPosEmbeddingMode.PAIRWISE.value
    rotated = rotary(p[..., :turned].contiguous(), sin, cos, None, 0, pairwise)
    return torch.cat([rotated, p[..., turned:]], dim=-1)


def apply_rotary_pos_emb(*args: Any) -> torch.Tensor:
    """Turn queries or keys, given ``(p, rope_cache)`` or tables of angles.

    The tables are ``(p, cos, sin, position_ids=None, offset=0, mode=BLOCKWISE)``: in float32 if
    any of the three tensors is; `position_ids` of [batch, length] choose rows of ``cos`` and
    ``sin``, `offset` their first column. A cache turns neighbouring channels. There is no
    gradient: the classes have one.
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
    """Give the gradient of ``p`` from that of what `apply_rotary_pos_emb` returned."""
    backward = torch.ops.hpu.rotary_pos_embedding_backward
    return _rotate(backward, p_grad_in, cos, sin, position_ids, offset, mode)


class RotaryPosEmbeddingHelperV1(torch.autograd.Function):
    """``apply(p, cos, sin, offset)``: the columns of cos and sin from `offset` on."""

    @staticmethod
    def forward(
        ctx: Any, p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, offset: int
    ) -> torch.Tensor:
        """Turn, and keep the angles."""
        ctx.save_for_backward(cos, sin)
        ctx.offset = offset
        return _rotate(torch.ops.hpu.rotary_pos_embedding, p, cos, sin, None, offset)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Gradients:
        """Give the gradient of ``p``: the angles have none."""
        of_p = apply_rotary_pos_emb_bwd(grads[0], *ctx.saved_tensors, None, ctx.offset)
        return of_p, None, None, None


class RotaryPosEmbeddingHelperV2(torch.autograd.Function):
    """``apply(p, cos, sin, position_ids)``: the rows of cos and sin at the positions."""

    @staticmethod
    def forward(
        ctx: Any, p: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position_ids: torch.Tensor
    ) -> torch.Tensor:
        """Turn, and keep the angles and positions."""
        ctx.save_for_backward(cos, sin, position_ids)
        return _rotate(torch.ops.hpu.rotary_pos_embedding, p, cos, sin, position_ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Gradients:
        """Give the gradient of ``p``: the angles have none."""
        return apply_rotary_pos_emb_bwd(grads[0], *ctx.saved_tensors), None, None, None


class RotaryPosEmbeddingHelperV3(torch.autograd.Function):
    """``apply(p, rope_cache)``: neighbouring channels, as many as the cache has."""

    @staticmethod
    def forward(ctx: Any, p: torch.Tensor, rope_cache: torch.Tensor) -> torch.Tensor:
        """Turn, and keep the cache."""
        ctx.save_for_backward(rope_cache)
        return _rotate_first(p, rope_cache)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Gradients:
        """Give the gradient of ``p``: the cache has none."""
        (rope_cache,) = ctx.saved_tensors
        return _rotate_first(grads[0], rope_cache, backward=True), None
