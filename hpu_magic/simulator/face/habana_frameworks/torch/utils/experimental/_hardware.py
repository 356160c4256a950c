"""The card's generation, the address of a tensor, and the handle of the compute stream."""

from __future__ import annotations

import warnings
from enum import IntEnum

from habana_frameworks.torch import hpu

import torch
from hpu_magic.simulator.cards.configuration import Configuration, DeviceType


class synDeviceType(IntEnum):
    """Card generations, with the same values as in the vendor's runtime."""

    synDeviceGaudi = DeviceType.GAUDI
    synDeviceGaudi2 = DeviceType.GAUDI2
    synDeviceGaudi3 = DeviceType.GAUDI3


def _get_device_type() -> synDeviceType:
    """Return the generation of the cards, without acquiring one.

    vLLM's plugin calls this function in processes that do not use a card, such as its API server,
    while another process uses the machine's only card.
    """
    return synDeviceType(DeviceType[Configuration.from_environment().generation])


def _is_fp16_supported() -> bool:
    """Return whether the card supports float16, which all generations except the first one do."""
    return _get_device_type() != synDeviceType.synDeviceGaudi


def _data_ptr(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's memory, or 0 if it has none."""
    try:
        return tensor.data_ptr()
    except (AttributeError, RuntimeError):  # not a tensor, or a tensor without storage
        return 0


def _compute_stream() -> int:
    """Return the handle of the compute stream, which is the default stream."""
    return hpu.default_stream().hpu_stream


def _reset_device_memory() -> None:
    """Only show a warning, because live tensors keep their memory."""
    warnings.warn("used only to reset the memory in case of testing", stacklevel=2)
