"""FP8 training, with layers that compute matmuls in FP8 and use delayed scaling.

This package follows the documentation of the vendor's package and uses operators in
``torch.ops.hpu``.
"""

from habana_frameworks.torch.hpex.experimental.transformer_engine import (
    cpp_extensions,
    distributed,
    fp8,
    recipe,
    utils,
)
from habana_frameworks.torch.hpex.experimental.transformer_engine._attention import FusedAttention
from habana_frameworks.torch.hpex.experimental.transformer_engine._layernorm_linear import (
    LayerNormLinear,
)
from habana_frameworks.torch.hpex.experimental.transformer_engine._linear import Linear
from habana_frameworks.torch.hpex.experimental.transformer_engine.distributed import checkpoint
from habana_frameworks.torch.hpex.experimental.transformer_engine.fp8 import fp8_autocast
