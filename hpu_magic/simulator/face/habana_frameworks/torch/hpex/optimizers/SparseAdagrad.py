"""Adagrad for the embedding rows that have gradients, in lazy mode."""

from habana_frameworks.torch import _hpex_C


class SparseAdagrad:
    """Standard Adagrad with an epsilon of 1e-10, because the vendor's kernel is not published.

    ``forward(gradients, weights, moments, indices, learning_rate, valid_count)`` performs a step in
    place. `gradients` has one row per index. `weights` and `moments` (the sums of earlier squared
    gradients) have shape [rows, channels]. `indices` (int32) contains the row index of each
    gradient; gradients for the same row are summed. `valid_count` (int32) is the number of valid
    gradients, and `learning_rate` has one element.
    """

    forward = staticmethod(_hpex_C.sparse_adagrad_with_valid_count)
