"""Dynamo's interface to the device."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch import hpu

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device


class HpuInterface(DeviceInterface):
    """The ``torch.hpu`` functions, with the names that Dynamo expects."""

    device = hpu.device
    Event = torch.Event
    Stream = torch.Stream

    class Worker:
        """Functions for compile worker processes, which must not acquire the card."""

        @staticmethod
        def set_device(device: int) -> None:
            """Do nothing, because a process has only one device."""

        @staticmethod
        def current_device() -> int:
            """Return the index of the device."""
            return 0

        @staticmethod
        def get_device_properties(device: Any = None) -> str:
            """Return the properties of the device."""
            return hpu.get_device_properties()

    current_device = staticmethod(hpu.current_device)
    set_device = staticmethod(hpu.set_device)
    device_count = staticmethod(hpu.device_count)
    is_available = staticmethod(hpu.is_available)
    stream = staticmethod(hpu.stream)
    current_stream = staticmethod(hpu.current_stream)
    set_stream = staticmethod(hpu.set_stream)
    synchronize = staticmethod(hpu.synchronize)
    get_compute_capability = staticmethod(hpu.get_device_capability)
    memory_allocated = staticmethod(hpu.memory_allocated)

    @staticmethod
    def exchange_device(device: int) -> int:
        """Return 0, the only device index."""
        return 0

    maybe_exchange_device = exchange_device

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        """Return the ID of the current stream."""
        return int(hpu.current_stream().stream_id)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        """Return whether the device supports bfloat16."""
        return hpu.is_bf16_supported()


def register() -> None:
    """Register the interface for ``hpu`` and ``hpu:0``."""
    for name in ("hpu", "hpu:0"):
        register_interface_for_device(name, HpuInterface)
