"""Adagrad on the rows of a table that have a gradient, for lazy mode."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


class SparseAdagrad:
    """A step by the textbook, with an epsilon of 1e-10: the vendor's kernel is not published."""

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
        weights : torch.Tensor
            [rows, channels].
        moments : torch.Tensor
            The sums of squares so far, of the weights' shape.
        indices : torch.Tensor
            int32; which row each gradient is of, those of one row add up.
        learning_rate : torch.Tensor
            One element.
        valid_count : torch.Tensor
            int32; how many of the gradients count.
        """
        _hpex_C.sparse_adagrad_with_valid_count(
            gradients, weights, moments, indices, learning_rate, valid_count
        )
