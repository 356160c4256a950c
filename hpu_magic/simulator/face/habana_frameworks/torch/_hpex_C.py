"""Functions of the vendor's extensions for lazy mode, where their operators have other schemas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from habana_frameworks.torch._flags import is_lazy

import torch

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _of_lazy_mode(
    frontend: str,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Refuse a function in eager mode; `frontend` is its name in the vendor's bridge."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @functools.wraps(function)
        def wrapper(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            if not is_lazy():
                raise RuntimeError(f"Frontend Op {frontend} not supported with new Eager mode")
            return function(*args, **kwargs)

        return wrapper

    return decorate


@_of_lazy_mode("fused_norm_hpu_wrap")
def fused_norm(
    gradients: list[torch.Tensor], max_norm: torch.Tensor, norm_type: float
) -> torch.Tensor:
    """Scale gradients so that their total norm is at most `max_norm`, and return the norm.

    Parameters
    ----------
    gradients : list of torch.Tensor
        The gradients, followed by a tensor of one element that receives the norm.
    max_norm : torch.Tensor
        One element.
    norm_type : float
        Only 2.0 is supported.
    """
    norm: torch.Tensor = torch.ops.hpu.fused_norm_lazy(gradients, max_norm, norm_type)
    return norm


@_of_lazy_mode("optimizer_sgd_hpu_wrap")
def optimizer_sgd(
    gradients: list[torch.Tensor],
    weights: list[torch.Tensor],
    learning_rate: torch.Tensor,
    wd: float,
    mom: float,
    damp: float,
    nesterov: bool,
) -> None:
    """Step by SGD; momentum, dampening and Nesterov's form have no effect."""
    torch.ops.hpu.habanaOptimizerSgd(gradients, weights, learning_rate, wd, mom, damp, nesterov)


@_of_lazy_mode("optimizer_sgd_momentum_hpu_wrap")
def optimizer_sgd_momentum(
    gradients: list[torch.Tensor],
    weights: list[torch.Tensor],
    momentum: list[torch.Tensor],
    epoch_num: torch.Tensor,
    learning_rate: torch.Tensor,
    mom: torch.Tensor,
    wd: float,
    damp: float,
    nesterov: bool,
) -> None:
    """Step by SGD with momentum."""
    torch.ops.hpu.habanaOptimizerSgdMomentum(
        gradients, weights, momentum, epoch_num, learning_rate, mom, wd, damp, nesterov
    )


@_of_lazy_mode("optimizer_ema_hpu_wrap")
def fused_ema(
    model_inputs: list[torch.Tensor], updated_ema: list[torch.Tensor], decay: torch.Tensor
) -> None:
    """Update moving averages with the model's values."""
    torch.ops.hpu.habanaOptimizerFusedEMA(model_inputs, updated_ema, decay)


@_of_lazy_mode("optimizer_lars_hpu_wrap")
def fused_lars(
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    skip_masks: list[int],
    eeta: float,
    weight_decay: float,
    eps: float,
    lr: torch.Tensor,
) -> None:
    """Multiply gradients by the learning rate and, if their mask is set, by a ratio of norms."""
    torch.ops.hpu.habanaOptimizerLars(params, grads, lr, skip_masks, eeta, weight_decay, eps)


@_of_lazy_mode("optimizer_adagrad_hpu_wrap")
def fused_adagrad(
    gradients: list[torch.Tensor],
    weights: list[torch.Tensor],
    variances: list[torch.Tensor],
    epoch_num: torch.Tensor,
    learning_rate: torch.Tensor,
    wd: float,
    lrd: float,
    eps: float,
) -> None:
    """Step by Adagrad: divide each gradient by the root of the sum of its squares so far."""
    torch.ops.hpu.habanaOptimizerFusedAdagrad(
        gradients, weights, variances, epoch_num, learning_rate, wd, lrd, eps
    )


@_of_lazy_mode("optimizer_sparse_sgd_with_valid_count_hpu_wrap")
def sparse_sgd_with_valid_count(
    gradients: torch.Tensor,
    weights: torch.Tensor,
    moments: torch.Tensor,
    indices: torch.Tensor,
    learning_rate: torch.Tensor,
    valid_count: torch.Tensor,
    mom: float,
    nesterov: bool,
) -> None:
    """Step some rows of a table by SGD."""
    torch.ops.hpu.habanaOptimizerSparseSgd(
        gradients, weights, moments, indices, learning_rate, valid_count, mom, nesterov
    )


@_of_lazy_mode("optimizer_sparse_adagrad_with_valid_count_hpu_wrap")
def sparse_adagrad_with_valid_count(
    gradients: torch.Tensor,
    weights: torch.Tensor,
    moments: torch.Tensor,
    indices: torch.Tensor,
    learning_rate: torch.Tensor,
    valid_count: torch.Tensor,
) -> None:
    """Step some rows of a table by Adagrad, without decay."""
    torch.ops.hpu.habanaOptimizerSparseAdagrad(
        gradients, weights, moments, indices, learning_rate, valid_count
    )


@_of_lazy_mode("embedding_bag_sum_hpu_wrap")
def embedding_bag_sum_fwd(
    input: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    valid_count: torch.Tensor,
    kernel_mode: int,
) -> torch.Tensor:
    """Sum the rows of each bag.

    Parameters
    ----------
    input : torch.Tensor
        The table, [rows, channels].
    indices : torch.Tensor
        Rows of all bags, in the order of the bags.
    offsets : torch.Tensor
        Start of each bag, and end of the last bag.
    valid_count : torch.Tensor
        One dimension; no effect.
    kernel_mode : int
        0 gathers a row for each index and ignores the offsets; 1 and 2 sum.

    Returns
    -------
    torch.Tensor
        [bags, channels], or [indices, channels] in mode 0.
    """
    sums: torch.Tensor = torch.ops.hpu.embedding_bag_sum(
        input, indices, offsets, valid_count, kernel_mode
    )
    return sums


@_of_lazy_mode("embedding_bag_sum_bwd_hpu_wrap")
def embedding_bag_sum_bwd(
    out: torch.Tensor,
    input: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    valid_count: torch.Tensor,
    kernel_mode: int,
) -> torch.Tensor:
    """Add the gradients of each used row to the first rows of `out`, and return it.

    Parameters
    ----------
    out : torch.Tensor
        Gradients of the used rows, in the order of `embedding_bag_preproc`.
    input : torch.Tensor
        Gradient of each bag.
    indices, offsets : torch.Tensor
        Bags grouped by row, and start of each group, from `embedding_bag_preproc`.
    valid_count : torch.Tensor
        The first element is the number of rows.
    kernel_mode : int
        See `embedding_bag_sum_fwd`.
    """
    written: torch.Tensor = torch.ops.hpu.embedding_bag_sum_bwd_out(
        out, input, indices, offsets, valid_count, kernel_mode
    )
    return written


def embedding_bag_preproc(
    indices: torch.Tensor, offsets: torch.Tensor, table_len: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort the indices of bags by row on the CPU, so that a backward can sum each row's gradients.

    Parameters
    ----------
    indices, offsets : torch.Tensor
        int32 on the CPU: the rows of all bags; the start of each bag and the end of the last one.
    table_len : int
        Number of rows in the table.

    Returns
    -------
    tuple of torch.Tensor
        Number of used rows (one element); the used rows in order; the bags that use them, grouped
        by row; the start of each group. All have their maximum length: unused entries of the rows
        are 0 and have no bags.

    Raises
    ------
    ValueError
        An index is outside the table, or the offsets do not match the indices.
    """
    count = indices.numel()
    if count and not 0 <= int(indices.min()) <= int(indices.max()) < table_len:
        raise ValueError(
            f"The indices of an embedding bag must be between 0 and {table_len - 1}, but range "
            f"from {int(indices.min())} to {int(indices.max())}."
        )
    lengths = offsets.diff()
    if not offsets.numel() or (lengths < 0).any() or int(offsets[0]) or int(offsets[-1]) != count:
        raise ValueError(
            f"The offsets of an embedding bag must increase from 0 to its {count} indices, but are "
            f"{offsets.tolist()}."
        )
    bags = torch.arange(lengths.numel(), dtype=torch.int32).repeat_interleave(lengths)
    ordered, order = indices.sort(stable=True)
    unique, counts = ordered.unique_consecutive(return_counts=True)
    rows = torch.zeros(count, dtype=torch.int32)
    rows[: unique.numel()] = unique
    row_offsets = torch.full((count + 1,), count, dtype=torch.int32)
    row_offsets[: unique.numel() + 1] = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return torch.tensor([unique.numel()], dtype=torch.int32), rows, bags[order], row_offsets


@_of_lazy_mode("permute_1D_sparse_data_hpu_wrap")
def permute_1D_sparse_data(
    permute: torch.Tensor,
    lengths: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Permute segments: segment i of the result is segment ``permute[i]``.

    Parameters
    ----------
    permute : torch.Tensor
        A permutation of the segments.
    lengths : torch.Tensor
        Length of each segment; several dimensions are flattened.
    indices, weights : torch.Tensor
        Elements of all segments.

    Returns
    -------
    tuple
        Lengths, indices, and weights or None.
    """
    return _permuted("habana_permute_1D_sparse_data", weights, permute, lengths, indices)


@_of_lazy_mode("permute_2D_sparse_data_hpu_wrap")
def permute_2D_sparse_data(
    permute: torch.Tensor,
    lengths: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Permute tables of segments; `lengths` is [tables, batch]. See `permute_1D_sparse_data`."""
    return _permuted("habana_permute_2D_sparse_data", weights, permute, lengths, indices)


def _permuted(
    name: str, weights: torch.Tensor | None, *operands: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    if weights is None:
        return *getattr(torch.ops.hpu, f"{name}_without_weights")(*operands), None
    lengths, indices, permuted_weights = getattr(torch.ops.hpu, name)(*operands, weights)
    return lengths, indices, permuted_weights


@_of_lazy_mode("expand_into_jagged_permute_hpu_wrap")
def expand_into_jagged_permute(
    permute: torch.Tensor,
    input_offsets: torch.Tensor,
    output_offsets: torch.Tensor,
    output_size: int,
) -> torch.Tensor:
    """Return the positions of the elements of permuted segments.

    Parameters
    ----------
    permute : torch.Tensor
        The segment at each position.
    input_offsets, output_offsets : torch.Tensor
        Start of each segment and end of the last one, before and after the permutation.
    output_size : int
        Number of elements in the segments of `permute`.

    Returns
    -------
    torch.Tensor
        One dimension, in the type of `input_offsets`.
    """
    places: torch.Tensor = torch.ops.hpu.habana_expand_into_jagged_permute(
        permute, input_offsets, output_offsets, output_size
    )
    return places


@_of_lazy_mode("bounds_check_indices_hpu_wrap")
def bounds_check_indices(
    indices: torch.Tensor,
    offsets: torch.Tensor,
    warning: torch.Tensor,
    rows_per_table: torch.Tensor,
    bounds_check_mode: int,
    weights: torch.Tensor | None,
) -> None:
    """Fix or report indices outside a table, and wrong offsets."""
    torch.ops.hpu.habana_bounds_check_indices(
        indices, offsets, warning, rows_per_table, bounds_check_mode, weights
    )


@_of_lazy_mode("split_permute_cat_hpu_wrap")
def split_permute_cat(
    input: torch.Tensor, indices: torch.Tensor, batch_size: int, num_features: int, dims: int
) -> torch.Tensor:
    """Permute the blocks of each row.

    Parameters
    ----------
    input : torch.Tensor
        [batch_size, num_features * dims].
    indices : torch.Tensor
        The block at each position.
    """
    blocks: torch.Tensor = torch.ops.hpu.habana_split_permute_cat(
        input, indices, batch_size, num_features, dims
    )
    return blocks


@_of_lazy_mode("matmul_ex_wrap")
def matmul_ex(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Multiply like ``torch.matmul``, with a result of `dtype`."""
    return torch.matmul(a.float(), b.float()).to(dtype)


@_of_lazy_mode("matmul_ex_backward_wrap")
def matmul_ex_backward(
    grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of both operands of `matmul_ex`, in `dtype`."""
    operands = [each.detach().float().requires_grad_() for each in (a, b)]
    with torch.enable_grad():
        product = torch.matmul(*operands)
    of_a, of_b = torch.autograd.grad(product, operands, grad.float())
    return of_a.to(dtype), of_b.to(dtype)


@_of_lazy_mode("random_seed_wrap")
def random_seed(seed: torch.Tensor) -> torch.Tensor:
    """Return the seed; the simulator does not have the card's seed register."""
    return seed
