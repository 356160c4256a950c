"""Sum rows of an embedding table in lazy mode."""

from habana_frameworks.torch import _hpex_C


class EmbeddingBag:
    """Sums the rows of each bag; `backward`, which autograd does not use, sums gradients by row."""

    forward = staticmethod(_hpex_C.embedding_bag_sum_fwd)
    backward = staticmethod(_hpex_C.embedding_bag_sum_bwd)
