"""Fused kernels as functions and as functions of autograd."""

from .CTCLoss import CTCLoss
from .CustomSoftmax import CustomSoftmax
from .EmbeddingBag import EmbeddingBag
from .EmbeddingBagPreproc import EmbeddingBagPreproc
from .fbgemm import (
    bounds_check_indices,
    expand_into_jagged_permute,
    permute_1D_sparse_data,
    permute_2D_sparse_data,
    split_embedding_codegen_lookup_function,
    split_permute_cat,
)
from .Fp8FusedSDPA import fp8_fused_sdpa
from .FusedSDPA import FusedSDPA
from .PySDPA import PySDPA, PySDPAHinted
from .RotaryPosEmbeddingHelper import (
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingHelperV3,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)

__all__ = [
    "CTCLoss",
    "CustomSoftmax",
    "EmbeddingBag",
    "EmbeddingBagPreproc",
    "FusedSDPA",
    "PySDPA",
    "PySDPAHinted",
    "RotaryPosEmbeddingHelperV1",
    "RotaryPosEmbeddingHelperV2",
    "RotaryPosEmbeddingHelperV3",
    "RotaryPosEmbeddingMode",
    "apply_rotary_pos_emb",
    "bounds_check_indices",
    "expand_into_jagged_permute",
    "fp8_fused_sdpa",
    "permute_1D_sparse_data",
    "permute_2D_sparse_data",
    "split_embedding_codegen_lookup_function",
    "split_permute_cat",
]
