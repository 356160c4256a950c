"""Gradient descent for table rows with gradients, in lazy mode."""

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
        """Perform a step in place.

        Parameters
        ----------
        gradients : torch.Tensor
            One row per index.
        weights, moments : torch.Tensor
            [rows, channels].
        indices : torch.Tensor
            int32, the row of each gradient; several gradients of a row are added.
        learning_rate : torch.Tensor
            One element.
        valid_count : torch.Tensor
            int32, the number of valid gradients.
        """
        _hpex_C.sparse_sgd_with_valid_count(
            gradients, weights, moments, indices, learning_rate, valid_count, 0.0, False
        )
