"""Softmax over the first entries of each row."""

from __future__ import annotations

from typing import Any

import torch


class RaggedSoftmax(torch.autograd.Function):
    """``RaggedSoftmax.apply(input, dim, half_to_float, valid_count)``.

    ``valid_count`` is the number of entries to normalize in each row; the other entries become 0.
    """

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, dim: int, half_to_float: bool, valid_count: torch.Tensor
    ) -> torch.Tensor:
        """Return the softmax."""
        result: torch.Tensor = torch.ops.hpu.ragged_softmax(input, dim, half_to_float, valid_count)
        ctx.save_for_backward(result)
        ctx.dim = dim
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the input; it is 0 for entries that became 0."""
        (result,) = ctx.saved_tensors
        of_input = torch._softmax_backward_data(grads[0], result, ctx.dim, result.dtype)
        return of_input, None, None, None


def valid_counts(p: int, q: int, device: torch.device | str) -> torch.Tensor:
    """Return the counts of a causal mask: 1 to `q`, repeated for `p` matrices.

    Returns
    -------
    torch.Tensor
        int32 of ``p * q`` elements.
    """
    return torch.arange(1, q + 1, dtype=torch.int32, device=device).repeat(p)


def triu_masked_softmax(input: torch.Tensor) -> torch.Tensor:
    """Apply a causal softmax over the last dimension.

    Parameters
    ----------
    input : torch.Tensor
        At least two dimensions; row i of the last two is normalized over its first i + 1 entries.

    Returns
    -------
    torch.Tensor
        The same shape, with zeros above the diagonal.
    """
    rows, columns = input.shape[-2:]
    counts = valid_counts(input[..., 0, 0].numel(), rows, input.device)
    ragged: torch.Tensor = RaggedSoftmax.apply(input.reshape(-1, 1, 1, columns), -1, False, counts)
    return ragged.reshape(input.shape)
