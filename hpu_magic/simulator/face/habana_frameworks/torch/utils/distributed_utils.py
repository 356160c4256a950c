"""Empty module that the vendor deprecated; its import warns."""

import warnings

warnings.warn(
    "habana_frameworks.torch.utils.distributed_utils is deprecated and empty; "
    "use torch.distributed.",
    FutureWarning,
    stacklevel=2,
)
