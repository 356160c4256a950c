"""Habana mixed precision: the way to bfloat16 before autocast, kept for scripts that use it.

New code uses ``torch.autocast("hpu", dtype=torch.bfloat16)``.
"""

from habana_frameworks.torch.hpex.hmp._convert import convert, disable_casts

__all__ = ["convert", "disable_casts"]
