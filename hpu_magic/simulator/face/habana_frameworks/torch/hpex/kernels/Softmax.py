"""Softmax over the first elements of each row."""

from __future__ import annotations

from typing import Any

import torch


class RaggedSoftmax(torch.autograd.Function):
    """``RaggedSoftmax.apply(input, dim, half_to_float, valid_count)``.

    ``valid_count`` is the number of elements to normalize in each row; the others are set to 0.
    """

    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, dim: int, half_to_float: bool, valid_count: torch.Tensor
    ) -> torch.Tensor:
        """Return the softmax."""
        result = torch.ops.hpu.ragged_softmax(input, dim, half_to_float, valid_count)
        ctx.save_for_backward(result)
        ctx.dim = dim
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the input, which is 0 for elements that were set to 0."""
        (result,) = ctx.saved_tensors
        gradient = torch._softmax_backward_data(grads[0], result, ctx.dim, result.dtype)
        return gradient, None, None, None


def valid_counts(p: int, q: int, device: torch.device | str) -> torch.Tensor:
    """Return the valid counts for a causal mask: int32 values 1 to `q`, repeated `p` times."""
    return torch.arange(1, q + 1, dtype=torch.int32, device=device).repeat(p)


def triu_masked_softmax(input: torch.Tensor) -> torch.Tensor:
    """Apply a causal softmax over the last dimension, with zeros above the diagonal.

    `input` has at least two dimensions. Row i of each matrix is normalized over its first i + 1
    elements.
    """
    rows, columns = input.shape[-2:]
    counts = valid_counts(input[..., 0, 0].numel(), rows, input.device)
    ragged = RaggedSoftmax.apply(input.reshape(-1, 1, 1, columns), -1, False, counts)
    return ragged.reshape(input.shape)
