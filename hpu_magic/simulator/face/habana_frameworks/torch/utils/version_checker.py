"""Versions of what the bridge runs with."""

from packaging.version import Version

import torch


def is_pytorch_at_least(version: str) -> bool:
    """Return whether the installed torch is of this release or a later one.

    Builds before a release, such as ``2.7.1a0+git``, count as that release. What follows a plus
    sign does not count.

    Raises
    ------
    packaging.version.InvalidVersion
        `version` is not a version number.
    """
    return Version(Version(torch.__version__).base_version) >= Version(Version(version).public)
