"""Deprecated by the vendor, and empty here: importing it warns."""

import warnings

warnings.warn(
    "habana_frameworks.torch.utils.distributed_utils is deprecated and empty; "
    "use torch.distributed.",
    FutureWarning,
    stacklevel=2,
)
