"""Scales and measurements of a module's tensors, and the indices of these tensors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch


class FP8FwdTensors(IntEnum):
    """Indices of the tensors in a forward pass."""

    GEMM1_INPUT = 0
    GEMM1_WEIGHT = 1


class FP8BwdTensors(IntEnum):
    """Indices of the tensors in a backward pass."""

    GRAD_OUTPUT1 = 0


class AttentionFwdTensors(IntEnum):
    """Indices of the tensors in the forward pass of attention."""

    QUERY = 0
    KEY = 1
    VALUE = 2
    PROBABILITIES = 3


class AttentionBwdTensors(IntEnum):
    """Indices of the tensors in the backward pass of attention."""

    GRAD_OUTPUT = 0
    GRAD_SCORES = 1


@dataclass
class FP8TensorMeta:
    """Scales and inverse scales of several tensors, and their history of largest magnitudes.

    `scale` and `scale_inv` have shape [tensors], and `amax_history` has shape [steps, tensors]. The
    first row of the history belongs to the current step, the last row to the previous step, and the
    second-to-last row to the step before that.
    """

    scale: torch.Tensor | None = None
    scale_inv: torch.Tensor | None = None
    amax_history: torch.Tensor | None = None
