"""pytest plug-in of hpu_magic, for tests on the device.

pytest loads `plugin`, which activates the device and imports the other modules only with ``--hpu``.
``docs/testing.md`` is the user documentation.
"""

from __future__ import annotations

from hpu_magic.errors import HPUError

__all__ = ["DeviceMemoryWarning", "RankError"]


class DeviceMemoryWarning(UserWarning):
    """A test left tensors on the device."""


class RankError(HPUError):
    """A rank of ``hpu_cards`` ended or did not return; the message names rank and function."""
