"""SGD for the embedding rows that have gradients, in lazy mode."""

from habana_frameworks.torch import _hpex_C

import torch


class SparseSGD:
    """Standard SGD without momentum, because the vendor's kernel is not published."""

    @staticmethod
    def forward(*tensors: torch.Tensor) -> None:
        """Perform a step in place, with the same arguments as `SparseAdagrad`."""
        _hpex_C.sparse_sgd_with_valid_count(*tensors, 0.0, False)
