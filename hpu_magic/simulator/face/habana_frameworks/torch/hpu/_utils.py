"""Reading device arguments."""

from __future__ import annotations

from typing import Any

import torch


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of ``"hpu:1"``, ``torch.device("hpu", 1)`` or ``1``; 0 when none is named.

    Raises
    ------
    ValueError
        `device` is of another type, or names no index where one is needed.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "hpu":
            raise ValueError(f"Expected a hpu device, but got: {device}")
        if device.index is not None:
            return int(device.index)
    if not optional:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got: {device}"
        )
    return 0
