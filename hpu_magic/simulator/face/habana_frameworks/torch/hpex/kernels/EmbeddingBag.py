"""Sums of rows of an embedding table, for lazy mode."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


class EmbeddingBag:
    """The sum of each bag's rows, and the sum of each row's gradients; autograd does not see it."""

    @staticmethod
    def forward(
        input: torch.Tensor,
        indices: torch.Tensor,
        offsets: torch.Tensor,
        valid_count: torch.Tensor,
        kernel_mode: int,
    ) -> torch.Tensor:
        """Add up the rows of each bag.

        Parameters
        ----------
        input : torch.Tensor
            The table, [rows, channels].
        indices : torch.Tensor
            Which rows, one bag's after the other's.
        offsets : torch.Tensor
            Where each bag begins, and where the last one ends.
        valid_count : torch.Tensor
            One dimension; without effect.
        kernel_mode : int
            0 gathers a row for each index, whatever the offsets; 1 and 2 add up.

        Returns
        -------
        torch.Tensor
            [bags, channels], in mode 0 [indices, channels].
        """
        return _hpex_C.embedding_bag_sum_fwd(input, indices, offsets, valid_count, kernel_mode)

    @staticmethod
    def backward(
        out: torch.Tensor,
        input: torch.Tensor,
        indices: torch.Tensor,
        offsets: torch.Tensor,
        valid_count: torch.Tensor,
        kernel_mode: int,
    ) -> torch.Tensor:
        """Add up the gradients of each row that bags use, into the first rows of `out`.

        Parameters
        ----------
        out : torch.Tensor
            Gradients, a row for each row that is used, in the order of `EmbeddingBagPreproc`.
        input : torch.Tensor
            The gradient of each bag.
        indices, offsets : torch.Tensor
            Bags and where each row's begin, from `EmbeddingBagPreproc`.
        valid_count : torch.Tensor
            Its first element says how many rows there are.
        kernel_mode : int
            As in `forward`.

        Returns
        -------
        torch.Tensor
            `out`.
        """
        return _hpex_C.embedding_bag_sum_bwd(out, input, indices, offsets, valid_count, kernel_mode)
