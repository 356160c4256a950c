"""Fused kernels, as plain functions and as autograd functions."""

from habana_frameworks.torch.hpex.kernels.CTCLoss import CTCLoss
from habana_frameworks.torch.hpex.kernels.CustomSoftmax import CustomSoftmax
from habana_frameworks.torch.hpex.kernels.EmbeddingBag import EmbeddingBag
from habana_frameworks.torch.hpex.kernels.EmbeddingBagPreproc import EmbeddingBagPreproc
from habana_frameworks.torch.hpex.kernels.fbgemm import (
    bounds_check_indices,
    expand_into_jagged_permute,
    permute_1D_sparse_data,
    permute_2D_sparse_data,
    split_embedding_codegen_lookup_function,
    split_permute_cat,
)
from habana_frameworks.torch.hpex.kernels.Fp8FusedSDPA import fp8_fused_sdpa
from habana_frameworks.torch.hpex.kernels.FusedSDPA import FusedSDPA
from habana_frameworks.torch.hpex.kernels.PySDPA import PySDPA, PySDPAHinted
from habana_frameworks.torch.hpex.kernels.RotaryPosEmbeddingHelper import (
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingHelperV3,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)
