"""8-bit training: layers whose products are of float8 tensors, with scales that follow.

It does what is documented of the vendor's package of this name, by the operators of
``torch.ops.hpu``.
"""

from . import cpp_extensions, distributed, fp8, recipe, utils
from ._attention import FusedAttention
from ._layernorm_linear import LayerNormLinear
from ._linear import Linear
from .distributed import checkpoint
from .fp8 import fp8_autocast

__all__ = [
    "FusedAttention",
    "LayerNormLinear",
    "Linear",
    "checkpoint",
    "cpp_extensions",
    "distributed",
    "fp8",
    "fp8_autocast",
    "recipe",
    "utils",
]
