"""Queries about the hardware, and help against input shapes that change."""

import torch
from hpu_magic.simulator.cards.configuration import DeviceType

from .. import hpu
from ._dynamicity import const_shape_dataloader, data_dynamicity, detect_recompilation_auto_model

__all__ = ["const_shape_dataloader", "data_dynamicity", "detect_recompilation_auto_model"]


def _get_device_type() -> int:
    """Return the synDeviceType number of the card: Gaudi 2, Gaudi2 4, Gaudi3 5."""
    return int(DeviceType[hpu.get_device_name()])


def _is_fp16_supported() -> bool:
    """Tell whether the card computes in float16: from the second generation on."""
    return _get_device_type() != DeviceType.GAUDI


def _data_ptr(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory."""
    return tensor.data_ptr()


def _compute_stream() -> int:
    """Return the handle of the stream that computes: the default one."""
    return hpu.default_stream().hpu_stream
