"""Gradient descent for the table rows that have gradients, in lazy mode."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


class SparseSGD:
    """Textbook SGD without momentum, because the vendor's kernel is not published."""

    @staticmethod
    def forward(
        gradients: torch.Tensor,
        weights: torch.Tensor,
        moments: torch.Tensor,
        indices: torch.Tensor,
        learning_rate: torch.Tensor,
        valid_count: torch.Tensor,
    ) -> None:
        """Perform a step in place; see `SparseAdagrad`. The moments do not change."""
        _hpex_C.sparse_sgd_with_valid_count(
            gradients, weights, moments, indices, learning_rate, valid_count, 0.0, False
        )
