"""Empty module, deprecated by the vendor; importing it shows a warning."""

import warnings

warnings.warn(
    "habana_frameworks.torch.utils.distributed_utils is deprecated and empty; "
    "use torch.distributed.",
    FutureWarning,
    stacklevel=2,
)
