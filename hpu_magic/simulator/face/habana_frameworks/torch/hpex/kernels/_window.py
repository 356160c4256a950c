"""What inference adds to attention: a window of keys around each query, and sinks."""

from __future__ import annotations

import torch


def windowed(
    mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor, window_size: tuple[int, int]
) -> torch.Tensor | None:
    """Hide the keys that lie outside of a query's window from a mask.

    Parameters
    ----------
    mask : torch.Tensor, optional
        An attention mask: bool, true where a key is seen, or numbers that are added.
    q, k : torch.Tensor
        Of [..., length, channels].
    window_size : tuple of int
        How many keys before and behind its own position a query sees; -1 for all.
    """
    before, behind = window_size
    if before < 0 and behind < 0:
        return mask
    query = torch.arange(q.shape[-2], device=q.device).unsqueeze(-1)
    distance = torch.arange(k.shape[-2], device=q.device) - query
    seen = torch.ones_like(distance, dtype=torch.bool)
    if before >= 0:
        seen = seen & (distance >= -before)
    if behind >= 0:
        seen = seen & (distance <= behind)
    if mask is None:
        return seen
    return mask & seen if mask.dtype is torch.bool else mask.masked_fill(~seen, -torch.inf)


def share_beside_sink(
    sink: torch.Tensor, largest: torch.Tensor, inverse_sum: torch.Tensor
) -> torch.Tensor:
    """Tell what is left to the keys where a sink takes part in the softmax.

    A sink is a score of its own for each query head; it has no value, so that attention to it is
    attention to nothing.

    Parameters
    ----------
    sink : torch.Tensor
        One score for each query head.
    largest, inverse_sum : torch.Tensor
        The largest score of each query and the inverse of its sum of exponentials, of
        [batch, heads, length, 1], the heads in one dimension or two.

    Returns
    -------
    torch.Tensor
        What probabilities and result are multiplied by, float32 of the shape of `largest`.

    Raises
    ------
    ValueError
        There is not one sink for each head.
    """
    heads = largest.shape[1:-2]
    if sink.dim() != 1 or sink.numel() != heads.numel():
        raise ValueError(
            f"FusedSDPA sink must be 1D of one score for each of {heads.numel()} query heads, but "
            f"has shape {list(sink.shape)}."
        )
    scores = sink.float().reshape(*heads, 1, 1)
    return 1 / (1 + torch.exp(scores - largest.float()) * inverse_sum.float())
