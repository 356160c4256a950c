"""Attention windows and attention sinks, which are supported in inference."""

from __future__ import annotations

import torch


def windowed(
    mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor, window_size: tuple[int, int]
) -> torch.Tensor | None:
    """Return a mask that also hides keys outside a query's window.

    `mask` is either boolean, with True for visible keys, or contains values to add to the scores.
    `window_size` is the number of visible keys before and after a query's position (-1 for all).
    """
    before, after = window_size
    if before < 0 and after < 0:
        return mask
    query = torch.arange(q.shape[-2], device=q.device).unsqueeze(-1)
    distance = torch.arange(k.shape[-2], device=q.device) - query
    visible = torch.ones_like(distance, dtype=torch.bool)
    if before >= 0:
        visible = visible & (distance >= -before)
    if after >= 0:
        visible = visible & (distance <= after)
    if mask is None:
        return visible
    return mask & visible if mask.dtype is torch.bool else mask.masked_fill(~visible, -torch.inf)


def share_next_to_sink(
    sink: torch.Tensor, largest: torch.Tensor, inverse_sum: torch.Tensor
) -> torch.Tensor:
    """Return the total probability of all keys when the softmax includes a sink.

    A sink is an additional score per query head, without a corresponding value. Raises ValueError
    if the number of sinks differs from the number of query heads. `largest` is the largest score of
    each query, and `inverse_sum` is the inverse of the query's sum of exponentials. Both tensors
    have the shape [batch, heads, length, 1], with the heads in one or two dimensions. The result
    has the same shape. The caller multiplies the probabilities and the attention output by it.
    """
    heads = largest.shape[1:-2]
    if sink.dim() != 1 or sink.numel() != heads.numel():
        raise ValueError(
            f"FusedSDPA sink has shape {list(sink.shape)}; use a 1D tensor with a score for each "
            f"of the {heads.numel()} query heads."
        )
    scores = sink.float().reshape(*heads, 1, 1)
    return 1 / (1 + torch.exp(scores - largest.float()) * inverse_sum.float())
