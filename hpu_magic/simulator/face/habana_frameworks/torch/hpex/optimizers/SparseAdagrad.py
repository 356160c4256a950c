"""Adagrad for the table rows that have gradients, in lazy mode."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


class SparseAdagrad:
    """Textbook Adagrad with an epsilon of 1e-10, because the vendor's kernel is not published."""

    @staticmethod
    def forward(
        gradients: torch.Tensor,
        weights: torch.Tensor,
        moments: torch.Tensor,
        indices: torch.Tensor,
        learning_rate: torch.Tensor,
        valid_count: torch.Tensor,
    ) -> None:
        """Perform a step in place, with one row of gradients per index.

        `weights` and `moments`, the sums of earlier squared gradients, are [rows, channels].
        `indices` (int32) is the row of each gradient; gradients of the same row are added.
        `valid_count` (int32) is the number of valid gradients, `learning_rate` has one element.
        """
        _hpex_C.sparse_adagrad_with_valid_count(
            gradients, weights, moments, indices, learning_rate, valid_count
        )
