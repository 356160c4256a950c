"""Fused kernels as functions and as functions of autograd."""

from .CTCLoss import CTCLoss
from .CustomSoftmax import CustomSoftmax
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
    "FusedSDPA",
    "PySDPA",
    "PySDPAHinted",
    "RotaryPosEmbeddingHelperV1",
    "RotaryPosEmbeddingHelperV2",
    "RotaryPosEmbeddingHelperV3",
    "RotaryPosEmbeddingMode",
    "apply_rotary_pos_emb",
    "fp8_fused_sdpa",
]
