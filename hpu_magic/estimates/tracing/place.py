"""The device that fake tensors are on."""

from __future__ import annotations

from hpu_magic.runtime.device import device


def device_type() -> str:
    """Return ``"hpu"``, or ``"cpu"`` where PyTorch has settled that this process has no card.

    What it traces there differs in little: the operators that a device has for itself.
    """
    return "hpu" if device.bridge_loaded() else "cpu"
