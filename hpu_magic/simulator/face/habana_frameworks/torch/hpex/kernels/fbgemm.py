"""FBGEMM's index functions for recommendation models, in lazy mode."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch._hpex_C import (  # noqa: F401  the vendor's names
    expand_into_jagged_permute,
    permute_1D_sparse_data,
    permute_2D_sparse_data,
    split_permute_cat,
)

import torch

_SUM = 0  # in FBGEMM's PoolingMode
_BAG_SUM = 1


def bounds_check_indices(
    rows_per_table: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bounds_check_mode: int,
    warning: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> None:
    """Fix or report out-of-range indices and invalid offsets, in place.

    Parameters
    ----------
    rows_per_table, indices, offsets : torch.Tensor
        The number of rows in each table; the row indices of all bags; and the start offset of each
        bag in each table, followed by the end offset of the last bag.
    bounds_check_mode : int
        0 marks errors with -1; 1 sets invalid indices to 0, fixes offsets, and adds the number of
        errors to the first element of `warning`; 2 does the same as 1 without counting errors; 3
        does nothing.
    warning : torch.Tensor
        Integer tensor; its first element counts the errors in mode 1.
    weights : torch.Tensor, optional
        One weight per index.
    """
    _hpex_C.bounds_check_indices(
        indices, offsets, warning, rows_per_table, bounds_check_mode, weights
    )


def split_embedding_codegen_lookup_function(
    host_weights: torch.Tensor,
    weights_offsets: torch.Tensor,
    D_offsets: torch.Tensor,
    total_D: int,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    pooling_mode: int,
    kernel_mode: Sequence[int] | None = None,
) -> torch.Tensor:
    """Sum the rows of each bag in each table, and return a tensor of shape [batch, total_D].

    Parameters
    ----------
    host_weights : torch.Tensor
        The flattened tables.
    weights_offsets : torch.Tensor
        Start offset of each table.
    D_offsets : torch.Tensor
        Start offset of each table's channels in a row of the result, followed by the end offset of
        the last table's channels.
    total_D : int
        Total number of channels in all tables.
    indices, offsets : torch.Tensor
        The row indices of all bags; and the start offset of each bag in each table, followed by the
        end offset of the last bag.
    pooling_mode : int
        FBGEMM's pooling mode; only the sum is supported.
    kernel_mode : sequence of int, optional
        For each table, 0 gathers a row for each index; 1 (the default) and 2 sum the rows.
    """
    assert int(pooling_mode) == _SUM, "Only PoolingMode.SUM is supported for HPU"
    columns = D_offsets.tolist()
    assert total_D == columns[-1], f"total_D ({total_D}) must match D_offsets[-1] ({columns[-1]})"
    tables = len(columns) - 1
    widths = {end - start for start, end in itertools.pairwise(columns)}
    assert len(widths) == 1, (
        f"All tables must have the same number of channels, but have {sorted(widths)}"
    )
    starts = [*weights_offsets.tolist()[:tables], host_weights.numel()]
    batch = (offsets.numel() - 1) // tables
    bags = offsets.to(torch.int32)
    rows = indices.to(torch.int32)
    valid = torch.tensor([rows.numel()], dtype=torch.int32).to(rows.device)
    sums = []
    for table in range(tables):
        weights = host_weights[starts[table] : starts[table + 1]].reshape(-1, *widths)
        mode = _BAG_SUM if kernel_mode is None else kernel_mode[table]
        of_table = bags[table * batch : (table + 1) * batch + 1]
        used = rows[of_table[0] : of_table[-1]] if mode == 0 else rows
        sums.append(_hpex_C.embedding_bag_sum_fwd(weights, used, of_table, valid, mode))
    return torch.cat(sums, dim=1)
