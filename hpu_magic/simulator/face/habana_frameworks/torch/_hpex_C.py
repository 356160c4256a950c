"""Lazy-mode functions of the vendor's extensions, which use different operator schemas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch._flags import is_lazy

import torch

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def _of_lazy_mode(frontend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function raise an error in eager mode; `frontend` is its name in the bridge."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not is_lazy():
                raise RuntimeError(f"Frontend Op {frontend} not supported with new Eager mode")
            return function(*args, **kwargs)

        return wrapper

    return decorate


def _calling(frontend: str, operator: str) -> Callable[..., Any]:
    """Return a function that calls an operator of ``torch.ops.hpu`` in lazy mode."""

    @_of_lazy_mode(frontend)
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(torch.ops.hpu, operator)(*args, **kwargs)

    return call


fused_norm = _calling("fused_norm_hpu_wrap", "fused_norm_lazy")
"""Scale gradients so that their total 2-norm is at most ``max_norm``, and return the norm.

Arguments: a list of the gradients, followed by a one-element tensor that receives the norm;
``max_norm`` as a one-element tensor; and the norm type, 2.0.
"""
optimizer_sgd = _calling("optimizer_sgd_hpu_wrap", "habanaOptimizerSgd")
"""Arguments: gradients, weights, learning rate and weight decay, then momentum, dampening and the
Nesterov flag (all three are ignored)."""
optimizer_sgd_momentum = _calling("optimizer_sgd_momentum_hpu_wrap", "habanaOptimizerSgdMomentum")
"""Arguments: gradients, weights, momentum buffers, step number, learning rate, momentum, weight
decay, dampening, Nesterov flag."""
fused_ema = _calling("optimizer_ema_hpu_wrap", "habanaOptimizerFusedEMA")
"""Update moving averages. Arguments: model values, averages, decay."""
fused_adagrad = _calling("optimizer_adagrad_hpu_wrap", "habanaOptimizerFusedAdagrad")
"""Arguments: gradients, weights, sums of squared gradients, step number, learning rate, weight
decay, learning rate decay, epsilon."""
sparse_sgd_with_valid_count = _calling(
    "optimizer_sparse_sgd_with_valid_count_hpu_wrap", "habanaOptimizerSparseSgd"
)
"""Arguments: gradients, weights, moments, indices, learning rate, number of valid gradients,
momentum, Nesterov flag."""
sparse_adagrad_with_valid_count = _calling(
    "optimizer_sparse_adagrad_with_valid_count_hpu_wrap", "habanaOptimizerSparseAdagrad"
)
"""Arguments: gradients, weights, moments, indices, learning rate, number of valid gradients."""
embedding_bag_sum_fwd = _calling("embedding_bag_sum_hpu_wrap", "embedding_bag_sum")
"""Return the sum of each bag's rows, with shape [bags, channels].

Arguments: the embedding table [rows, channels]; the indices for all bags; the start offset of each
bag, followed by the end offset of the last one; a 1D count tensor (ignored); and the mode. Mode 0
ignores the bags and returns a row for each index; modes 1 and 2 return the sums.
"""
embedding_bag_sum_bwd = _calling("embedding_bag_sum_bwd_hpu_wrap", "embedding_bag_sum_bwd_out")
"""Sum the gradients for each row in use, add them to the first rows of a tensor, and return it.

Arguments: the tensor, with its first rows in the same order as the rows returned by
`embedding_bag_preproc`; the gradient of each bag; the bags grouped by row and the start offset of
each group, also returned by `embedding_bag_preproc`; the number of rows in use; and the mode.
"""
expand_into_jagged_permute = _calling(
    "expand_into_jagged_permute_hpu_wrap", "habana_expand_into_jagged_permute"
)
"""Return the original position of each element of the permuted segments.

Arguments: the segment index for each position; the segment offsets, including the end offset of the
last segment, before and after the permutation; and the total number of elements in these segments.
"""
bounds_check_indices = _calling("bounds_check_indices_hpu_wrap", "habana_bounds_check_indices")
"""Like ``hpex.kernels.bounds_check_indices``, but with the arguments in a different order."""
split_permute_cat = _calling("split_permute_cat_hpu_wrap", "habana_split_permute_cat")
"""Permute the blocks in each row. Arguments: the input [batch, features * dims], the index of the
block for each position, batch, features, dims."""


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
    """Scale gradients by the learning rate and, if their mask is set, by the LARS trust ratio."""
    torch.ops.hpu.habanaOptimizerLars(params, grads, lr, skip_masks, eeta, weight_decay, eps)


def embedding_bag_preproc(
    indices: torch.Tensor, offsets: torch.Tensor, table_len: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort the bags' indices by row on the CPU, so that backward can sum each row's gradients.

    Parameters
    ----------
    indices, offsets : torch.Tensor
        int32 tensors on the CPU: the row indices of all bags, and the start offset of each bag
        followed by the end offset of the last one.
    table_len : int
        Number of rows in the table; an out-of-range index raises ValueError.

    Returns
    -------
    tuple of torch.Tensor
        The number of rows in use (as a one-element tensor); the sorted indices of these rows; the
        bags that use them, grouped by row; and the start offset of each group. The tensors are
        padded to their maximum length: unused entries are row 0 with an empty group.
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
            "The offsets of an embedding bag must increase from 0 to the number of indices "
            f"({count}), but are {offsets.tolist()}."
        )
    bags = torch.arange(lengths.numel(), dtype=torch.int32).repeat_interleave(lengths)
    ordered, order = indices.sort(stable=True)
    unique, counts = ordered.unique_consecutive(return_counts=True)
    rows = torch.zeros(count, dtype=torch.int32)
    rows[: unique.numel()] = unique
    row_offsets = torch.full((count + 1,), count, dtype=torch.int32)
    row_offsets[: unique.numel() + 1] = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return torch.tensor([unique.numel()], dtype=torch.int32), rows, bags[order], row_offsets


def _permuting(name: str) -> Callable[..., Triple]:
    @_of_lazy_mode(f"{name}_hpu_wrap")
    def permute_segments(
        permute: torch.Tensor,
        lengths: torch.Tensor,
        indices: torch.Tensor,
        weights: torch.Tensor | None = None,
    ) -> Triple:
        if weights is None:
            operator = getattr(torch.ops.hpu, f"habana_{name}_without_weights")
            return *operator(permute, lengths, indices), None
        return getattr(torch.ops.hpu, f"habana_{name}")(permute, lengths, indices, weights)

    return permute_segments


permute_1D_sparse_data = _permuting("permute_1D_sparse_data")
"""Permute segments: segment i of the result is segment ``permute[i]`` of the input.

`lengths` contains the length of each segment, and is flattened if it has several dimensions.
Returns the permuted lengths, indices, and weights (or None).
"""
permute_2D_sparse_data = _permuting("permute_2D_sparse_data")
"""Like `permute_1D_sparse_data`, but permutes whole tables; `lengths` has shape [tables, batch]."""


@_of_lazy_mode("matmul_ex_wrap")
def matmul_ex(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Compute ``torch.matmul(a, b)`` and return the result in `dtype`."""
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
    """Return `seed` unchanged, because simulated cards have no seed register."""
    return seed
