"""The pytest plug-in of hpu_magic, for tests on the device.

pytest loads `plugin`. Only with ``--hpu``, it activates the device and imports the other modules.
``docs/testing.md`` is the documentation for users.
"""

from __future__ import annotations

__all__ = ["DeviceMemoryWarning", "RankError"]


class DeviceMemoryWarning(UserWarning):
    """A test did not free tensors on the device."""


class RankError(RuntimeError):
    """A rank of ``hpu_cards`` ended or did not return; the message contains rank and function."""
