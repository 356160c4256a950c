"""Functions of FBGEMM's names for what recommendation models do to indices, for lazy mode."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from habana_frameworks.torch import _hpex_C

import torch

_SUM = 0  # of FBGEMM's PoolingMode
_BAG_SUM = 1


def permute_1D_sparse_data(
    permute: torch.Tensor,
    lengths: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Order segments anew: segment i of the result is segment ``permute[i]``.

    Parameters
    ----------
    permute : torch.Tensor
        Each segment once.
    lengths : torch.Tensor
        Of each segment; several dimensions are flattened.
    indices, weights : torch.Tensor
        The elements of all segments.

    Returns
    -------
    tuple
        Lengths, indices, and weights or None.
    """
    return _hpex_C.permute_1D_sparse_data(permute, lengths, indices, weights)


def permute_2D_sparse_data(
    permute: torch.Tensor,
    lengths: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Order tables of segments anew, given their lengths as [tables, batch].

    Returns
    -------
    tuple
        Lengths, indices, and weights or None.
    """
    return _hpex_C.permute_2D_sparse_data(permute, lengths, indices, weights)


def expand_into_jagged_permute(
    permute: torch.Tensor,
    input_offsets: torch.Tensor,
    output_offsets: torch.Tensor,
    output_size: int,
) -> torch.Tensor:
    """Give the places of the elements of segments that are ordered anew.

    Parameters
    ----------
    permute : torch.Tensor
        Which segment comes where.
    input_offsets, output_offsets : torch.Tensor
        Where segments begin and the last one ends, before and after.
    output_size : int
        How many elements the segments have that `permute` names.

    Returns
    -------
    torch.Tensor
        One dimension, of the type of `input_offsets`.
    """
    return _hpex_C.expand_into_jagged_permute(permute, input_offsets, output_offsets, output_size)


def bounds_check_indices(
    rows_per_table: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bounds_check_mode: int,
    warning: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> None:
    """Find indices that their table does not have, and offsets that do not fit, in place.

    Parameters
    ----------
    rows_per_table : torch.Tensor
        How many rows each table has.
    indices, offsets : torch.Tensor
        The rows that bags use, and where each bag of each table begins and the last one ends.
    bounds_check_mode : int
        0 marks faults with -1; 1 makes indices 0, mends offsets and adds the number of faults to
        the first element of `warning`; 2 does so without counting; 3 does nothing.
    warning : torch.Tensor
        Of whole numbers.
    weights : torch.Tensor, optional
        One for each index.
    """
    _hpex_C.bounds_check_indices(
        indices, offsets, warning, rows_per_table, bounds_check_mode, weights
    )


def split_permute_cat(
    input: torch.Tensor, indices: torch.Tensor, batch_size: int, num_features: int, dims: int
) -> torch.Tensor:
    """Order the blocks of each row anew.

    Parameters
    ----------
    input : torch.Tensor
        [batch_size, num_features * dims].
    indices : torch.Tensor
        Which block comes where.
    """
    return _hpex_C.split_permute_cat(input, indices, batch_size, num_features, dims)


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
    """Add up the rows of each bag of each table.

    Parameters
    ----------
    host_weights : torch.Tensor
        The tables after each other, one dimension.
    weights_offsets : torch.Tensor
        Where each table begins.
    D_offsets : torch.Tensor
        Where each table's channels begin in a row of the result, and where the last one's end.
    total_D : int
        The channels of all tables.
    indices, offsets : torch.Tensor
        The rows that bags use, and where each bag of each table begins and the last one ends.
    pooling_mode : int
        FBGEMM's, of which there is only the sum.
    kernel_mode : sequence of int, optional
        Of each table: 0 gathers a row for each index, 1 and 2 add up, which is the default.

    Returns
    -------
    torch.Tensor
        [batch, total_D].
    """
    assert int(pooling_mode) == _SUM, "Only PoolingMode.SUM is supported for HPU"
    columns = D_offsets.tolist()
    assert total_D == columns[-1], f"total_D ({total_D}) must match D_offsets[-1] ({columns[-1]})"
    tables = len(columns) - 1
    widths = {end - start for start, end in itertools.pairwise(columns)}
    assert len(widths) == 1, f"All tables must have as many channels, but have {sorted(widths)}"
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
        its = rows[of_table[0] : of_table[-1]] if mode == 0 else rows
        sums.append(_hpex_C.embedding_bag_sum_fwd(weights, its, of_table, valid, mode))
    return torch.cat(sums, dim=1)
