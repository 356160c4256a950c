"""The accelerator: which cards Lightning sees, and what it may ask of them."""

from __future__ import annotations

import os
from typing import Any

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning.devices import number_of_cards, vendor_hpu
from hpu_magic.lightning.fp8 import require_fp8
from hpu_magic.runtime.device.peak import since_reset

MEMORY_METRICS = (
    "Limit",
    "InUse",
    "MaxInUse",
    "NumAllocs",
    "NumFrees",
    "ActiveAllocs",
    "MaxAllocSize",
    "TotalSystemAllocs",
    "TotalSystemFrees",
    "TotalActiveAllocs",
)
"""Keys of ``torch.hpu.memory_stats()``, as documented by the vendor."""


class HPUAcceleratorBase:
    """Intel Gaudi cards as an accelerator of Lightning, by the name ``"hpu"``."""

    def setup_device(self, device: torch.device) -> None:
        """Choose the card of this process, where its rank among several has not chosen it.

        Raises
        ------
        HPUError
            When ``device`` is not an ``hpu`` device.
        """
        if device.type != "hpu":
            raise HPUError(f"HPUAccelerator works on an hpu device, not on {str(device)!r}.")
        if "HLS_MODULE_ID" not in os.environ:
            torch.hpu.set_device(device)  # type: ignore[attr-defined]

    def teardown(self) -> None:
        """Leave the card as it is: it belongs to the process until the process ends."""

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Return the documented memory statistics: bytes, and counts of allocations.

        The peak is that since the user's own last reset, though a panel resets the device's.
        """
        hpu = vendor_hpu()
        if hpu is None:
            return {}
        stats = dict(hpu.memory_stats(device))
        stats["MaxInUse"] = since_reset()
        return {name: stats[name] for name in MEMORY_METRICS if name in stats}

    @staticmethod
    def parse_devices(devices: object) -> int:
        """Return the number of cards asked for.

        Raises
        ------
        HPUError
            When more cards than there are, or certain ones, are asked for.
        """
        return number_of_cards(devices)

    @staticmethod
    def get_parallel_devices(devices: object) -> list[torch.device]:
        """Return the device of each process, without an index: each has a card of its own."""
        return [torch.device("hpu")] * number_of_cards(devices)

    @staticmethod
    def auto_device_count() -> int:
        """Return how many cards the machine has, without acquiring one."""
        return number_of_cards("auto")

    @staticmethod
    def is_available() -> bool:
        """Return whether there is a card, real or simulated, without acquiring it."""
        hpu = vendor_hpu()
        return hpu is not None and bool(hpu.is_available())

    @staticmethod
    def get_device_name() -> str:
        """Return the name of the card, ``"GAUDI2"`` for example; this acquires it."""
        hpu = vendor_hpu()
        return "" if hpu is None else str(hpu.get_device_name())

    @staticmethod
    def is_fp8_available() -> tuple[bool, str]:
        """Return whether the machine's cards compute in 8 bits, and why not."""
        try:
            require_fp8()
        except HPUError as refusal:
            return False, str(refusal)
        return True, ""

    @staticmethod
    def is_lazy() -> bool:
        """Return whether the process is in lazy mode."""
        if vendor_hpu() is None:
            return False
        from habana_frameworks.torch.utils.internal import is_lazy

        return bool(is_lazy())

    @classmethod
    def register_accelerators(cls, accelerator_registry: Any) -> None:
        """Register the accelerator under its name."""
        accelerator_registry.register(cls.name(), cls, description="Intel Gaudi", override=True)

    @staticmethod
    def name() -> str:
        """Return the name for ``Trainer(accelerator=...)``."""
        return "hpu"
