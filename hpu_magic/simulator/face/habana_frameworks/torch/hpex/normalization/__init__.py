"""Root mean square normalization, and gradient clipping by total norm."""

from habana_frameworks.torch.hpex.normalization.FusedClipNorm import FusedClipNorm
from habana_frameworks.torch.hpex.normalization.FusedRMSNorm import FusedRMSNorm, RmsNormBwdMode
