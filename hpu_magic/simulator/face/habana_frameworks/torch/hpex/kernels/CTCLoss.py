"""Connectionist temporal classification with a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

Lengths = torch.Tensor | Sequence[int]
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


class CTCLoss(torch.autograd.Function):
    """``CTCLoss.apply(log_probs, targets, input_lengths, target_lengths, blank=0, ...)``.

    The further arguments, by position: ``reduction="mean"`` and ``zero_infinity=False``. Values and
    gradients are those of ``torch.nn.CTCLoss``; probabilities are [time, batch, classes], or
    [time, classes] of one sequence.
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
        """Give the loss, and keep what the backward needs.

        Raises
        ------
        ValueError
            The reduction is none of "none", "mean" and "sum".
        """
        if reduction not in _REDUCTIONS:
            raise ValueError(
                f'CTCLoss reduction must be "none", "mean" or "sum", but is {reduction!r}.'
            )
        lengths = [
            torch.as_tensor(each, device=log_probs.device)
            for each in (input_lengths, target_lengths)
        ]
        ctx.options = blank, _REDUCTIONS[reduction], zero_infinity
        given = log_probs, targets, *lengths
        loss: torch.Tensor
        loss, alpha = torch.ops.hpu.ctc_loss_custom(*given, *ctx.options)
        ctx.save_for_backward(*given, loss, alpha)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Give the gradient of the probabilities: nothing else has one."""
        of_probs = torch.ops.hpu.ctc_loss_custom_backward(
            grads[0], *ctx.saved_tensors, *ctx.options
        )
        return of_probs, *[None] * 6
