"""Queries about the hardware."""

import torch
from hpu_magic.simulator.configuration import DeviceType

from .. import hpu


def _get_device_type() -> int:
    """Return the synDeviceType number of the card: Gaudi 2, Gaudi2 4, Gaudi3 5."""
    return int(DeviceType[hpu.get_device_name()])


def _is_fp16_supported() -> bool:
    """Tell whether the card computes in float16: from the second generation on."""
    return _get_device_type() != DeviceType.GAUDI


def _data_ptr(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory."""
    return tensor.data_ptr()
