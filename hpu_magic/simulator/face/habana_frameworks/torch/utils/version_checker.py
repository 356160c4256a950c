"""Check the PyTorch version."""

from packaging.version import Version

import torch


def is_pytorch_at_least(version: str) -> bool:
    """Return whether the installed torch release is `version` or later.

    Pre-releases such as ``2.7.1a0+git`` count as the release itself. Local version labels (after a
    plus sign) are ignored. Raises ``packaging.version.InvalidVersion`` for an invalid `version`.
    """
    return Version(Version(torch.__version__).base_version) >= Version(Version(version).public)
