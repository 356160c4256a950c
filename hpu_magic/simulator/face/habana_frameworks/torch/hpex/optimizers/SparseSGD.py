"""Gradient descent on the rows of a table that have a gradient, for lazy mode."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


class SparseSGD:
    """A step without momentum, by the textbook: the vendor's kernel is not published."""

    @staticmethod
    def forward(
        gradients: torch.Tensor,
        weights: torch.Tensor,
        moments: torch.Tensor,
        indices: torch.Tensor,
        learning_rate: torch.Tensor,
        valid_count: torch.Tensor,
    ) -> None:
        """Step in place.

        Parameters
        ----------
        gradients : torch.Tensor
            A row for each index.
        weights, moments : torch.Tensor
            [rows, channels].
        indices : torch.Tensor
            int32; which row each gradient is of, those of one row add up.
        learning_rate : torch.Tensor
            One element.
        valid_count : torch.Tensor
            int32; how many of the gradients count.
        """
        _hpex_C.sparse_sgd_with_valid_count(
            gradients, weights, moments, indices, learning_rate, valid_count, 0.0, False
        )
