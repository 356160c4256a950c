"""Sum the rows of an embedding table, in lazy mode."""

from habana_frameworks.torch import _hpex_C


class EmbeddingBag:
    """Sums each bag's rows and each row's gradients, but is not connected to autograd."""

    forward = staticmethod(_hpex_C.embedding_bag_sum_fwd)
    backward = staticmethod(_hpex_C.embedding_bag_sum_bwd)
