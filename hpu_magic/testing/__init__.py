"""The pytest plug-in of hpu_magic, for tests on the device.

pytest loads `plugin`, which activates the device and imports the other modules only if ``--hpu`` is
passed. The user documentation is in ``docs/testing.md``.
"""

from __future__ import annotations

from hpu_magic.errors import HPUError

__all__ = ["DeviceMemoryWarning", "RankError"]


class DeviceMemoryWarning(UserWarning):
    """A test left tensors on the device."""


class RankError(HPUError):
    """A rank of ``hpu_cards`` ended or did not return. The message names the rank and function."""
