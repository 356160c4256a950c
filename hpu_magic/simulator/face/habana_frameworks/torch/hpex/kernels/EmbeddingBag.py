"""Sums of rows of an embedding table, for lazy mode."""

from habana_frameworks.torch import _hpex_C


class EmbeddingBag:
    """Sums of each bag's rows, and of each row's gradients; not connected to autograd."""

    forward = staticmethod(_hpex_C.embedding_bag_sum_fwd)
    backward = staticmethod(_hpex_C.embedding_bag_sum_bwd)
