"""Attention in float64, as a reference for the fused operators."""

import torch


def attention(q, k, v, mask=None, is_causal=False, scale=None, window=(-1, -1), sink=None):
    """Return the result and the probabilities, which are zeros for fully masked queries.

    ``window`` limits the number of keys to the left and right of a query; -1 means no limit.
    ``sink`` is an additional score per head.
    """
    if q.dim() == 4:
        k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = q.double() @ k.double().mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    rows, columns = (torch.arange(size) for size in scores.shape[-2:])
    distance = rows[:, None] - columns
    hidden = (distance < 0) & is_causal
    for limit, direction in zip(window, (1, -1), strict=True):
        hidden |= (distance * direction > limit) & (limit >= 0)
    scores = scores.masked_fill(hidden, -torch.inf)
    if mask is not None and mask.dtype is torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.double()
    if sink is not None:
        column = sink.double().reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], -1)
    masked = (scores == -torch.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(masked, 0.0), -1).masked_fill(masked, 0.0)
    probabilities = weights[..., : k.shape[-2]]
    return probabilities @ v.double(), probabilities
