"""Scales and measurements of a module's tensors, and the places that they have there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch


class FP8FwdTensors(IntEnum):
    """Places of the tensors of a forward pass."""

    GEMM1_INPUT = 0
    GEMM1_WEIGHT = 1


class FP8BwdTensors(IntEnum):
    """Places of the tensors of a backward pass."""

    GRAD_OUTPUT1 = 0


class AttentionFwdTensors(IntEnum):
    """Places of the tensors of attention's forward pass."""

    QUERY = 0
    KEY = 1
    VALUE = 2
    PROBABILITIES = 3


class AttentionBwdTensors(IntEnum):
    """Places of the tensors of attention's backward pass."""

    GRAD_OUTPUT = 0
    GRAD_SCORES = 1


@dataclass
class FP8TensorMeta:
    """Scales of some tensors, and the largest magnitudes that they had.

    Attributes
    ----------
    scale : torch.Tensor
        What the tensors are multiplied by before they are rounded, [tensors].
    scale_inv : torch.Tensor
        The inverse of `scale`.
    amax_history : torch.Tensor
        Largest magnitudes, [steps, tensors]. The first row is of the step that runs, the last of
        the one before it, and so on upwards.
    """

    scale: torch.Tensor | None = None
    scale_inv: torch.Tensor | None = None
    amax_history: torch.Tensor | None = None
