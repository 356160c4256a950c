"""Root mean square normalization, and clipping of gradients by their common norm."""

from .FusedClipNorm import FusedClipNorm
from .FusedRMSNorm import FusedRMSNorm, RmsNormBwdMode

__all__ = ["FusedClipNorm", "FusedRMSNorm", "RmsNormBwdMode"]
