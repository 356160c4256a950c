"""Tests on the device: what the pytest plug-in of hpu_magic gives to tests.

`plugin` is what pytest loads. With ``--hpu`` it turns the device on, and the other modules come in;
without, nothing here is imported beside it. ``docs/testing.md`` is the page for users.
"""

from __future__ import annotations

__all__ = ["DeviceMemoryWarning", "RankError"]


class DeviceMemoryWarning(UserWarning):
    """A test left tensors on the device."""


class RankError(RuntimeError):
    """A rank of ``hpu_cards`` ended, or did not come back; the text says which and where."""
