"""Preprocess the indices of an embedding bag for its backward pass."""

from habana_frameworks.torch import _hpex_C


class EmbeddingBagPreproc:
    """Sorts indices on the CPU; `forward` returns the arguments of `EmbeddingBag.backward`."""

    forward = staticmethod(_hpex_C.embedding_bag_preproc)
