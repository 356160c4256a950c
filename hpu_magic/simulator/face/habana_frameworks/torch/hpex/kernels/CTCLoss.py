"""Differentiable connectionist temporal classification loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from habana_frameworks.torch._once_differentiable import once_differentiable

import torch

Lengths = torch.Tensor | Sequence[int]
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


class CTCLoss(torch.autograd.Function):
    """``CTCLoss.apply(log_probs, targets, input_lengths, target_lengths, blank=0, ...)``.

    The remaining positional arguments are ``reduction="mean"`` and ``zero_infinity=False``. The
    loss and its gradients are the same as those of ``torch.nn.CTCLoss``. `log_probs` has the shape
    [time, batch, classes], or [time, classes] for a single sequence.
    """

    @staticmethod
    def forward(
        ctx: Any,
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Lengths,
        target_lengths: Lengths,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        """Return the loss; raise ValueError if `reduction` is not "none", "mean" or "sum"."""
        if reduction not in _REDUCTIONS:
            raise ValueError(f"CTCLoss reduction is {reduction!r}; use 'none', 'mean' or 'sum'.")
        lengths = [
            torch.as_tensor(each, device=log_probs.device)
            for each in (input_lengths, target_lengths)
        ]
        ctx.options = blank, _REDUCTIONS[reduction], zero_infinity
        operands = log_probs, targets, *lengths
        loss, alpha = torch.ops.hpu.ctc_loss_custom(*operands, *ctx.options)
        ctx.save_for_backward(*operands, loss, alpha)
        return loss

    @staticmethod
    @once_differentiable("CTCLoss")
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the log probabilities."""
        gradient = torch.ops.hpu.ctc_loss_custom_backward(
            grads[0], *ctx.saved_tensors, *ctx.options
        )
        return gradient, *[None] * 6
