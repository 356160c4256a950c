"""What the backward of an embedding bag needs to know of its indices."""

from __future__ import annotations

from habana_frameworks.torch import _hpex_C

import torch


class EmbeddingBagPreproc:
    """Sorts indices on the CPU."""

    @staticmethod
    def forward(
        indices: torch.Tensor, offsets: torch.Tensor, table_len: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Give what `EmbeddingBag.backward` takes.

        Parameters
        ----------
        indices, offsets : torch.Tensor
            int32 on the CPU: the rows that bags use, and where each bag begins and the last ends.
        table_len : int
            How many rows the table has.

        Returns
        -------
        tuple of torch.Tensor
            How many rows are used; those rows in order; the bags that use them, one row's after the
            other's; and where each row's bags begin. What follows the count is filler.

        Raises
        ------
        ValueError
            A row that the table does not have, or offsets that do not fit the indices.
        """
        return _hpex_C.embedding_bag_preproc(indices, offsets, table_len)
