"""Habana Mixed Precision (HMP), the predecessor of autocast, for scripts that still use it.

New code should use ``torch.autocast("hpu", dtype=torch.bfloat16)``.
"""

from habana_frameworks.torch.hpex.hmp._convert import convert, disable_casts
