"""Sums of rows of an embedding table, in lazy mode."""

from habana_frameworks.torch import _hpex_C


class EmbeddingBag:
    """Sums the rows of each bag, and in `backward` the gradients of each row; not for autograd."""

    forward = staticmethod(_hpex_C.embedding_bag_sum_fwd)
    backward = staticmethod(_hpex_C.embedding_bag_sum_bwd)
