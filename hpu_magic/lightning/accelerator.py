"""The accelerator that makes the machine's cards available to Lightning."""

from __future__ import annotations

import os
from typing import Any

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning.devices_argument import number_of_cards
from hpu_magic.lightning.fp8 import require_fp8
from hpu_magic.lightning.processes.devices import vendor_hpu
from hpu_magic.runtime.device.peak import since_reset

MEMORY_METRICS = (
    *("Limit", "InUse", "MaxInUse", "NumAllocs", "NumFrees", "ActiveAllocs", "MaxAllocSize"),
    *("TotalSystemAllocs", "TotalSystemFrees", "TotalActiveAllocs"),
)
"""The documented keys of ``torch.hpu.memory_stats()``."""


class HPUAcceleratorBase:
    """Lightning accelerator for Intel Gaudi cards, ``"hpu"``."""

    def setup_device(self, device: torch.device) -> None:
        """Select the card of this process, unless the environment has already assigned one.

        Raises
        ------
        HPUError
            ``device`` is not an ``hpu`` device.
        """
        if device.type != "hpu":
            raise HPUError(f"HPUAccelerator needs an hpu device, but got {str(device)!r}.")
        if "HLS_MODULE_ID" not in os.environ:
            torch.hpu.set_device(device)  # type: ignore[attr-defined]

    def teardown(self) -> None:
        """Do nothing, because a process holds its card until it ends."""

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Return the documented memory statistics: sizes in bytes, and allocation counts.

        The peak is the maximum since the user's last reset; resets by panels do not affect it.
        """
        hpu = vendor_hpu()
        if hpu is None:
            return {}
        stats = dict(hpu.memory_stats(device))
        stats["MaxInUse"] = since_reset()
        return {name: stats[name] for name in MEMORY_METRICS if name in stats}

    @staticmethod
    def parse_devices(devices: object) -> int:
        """Return the requested number of cards.

        Raises
        ------
        HPUError
            The machine has fewer cards, or `devices` is invalid.
        """
        return number_of_cards(devices)

    @staticmethod
    def get_parallel_devices(devices: object) -> list[torch.device]:
        """Return one device per process, without an index because each process has its own card."""
        return [torch.device("hpu")] * number_of_cards(devices)

    @staticmethod
    def auto_device_count() -> int:
        """Return the number of cards in the machine, without acquiring one."""
        return number_of_cards("auto")

    @staticmethod
    def is_available() -> bool:
        """Return whether a real or simulated card is available, without acquiring it."""
        hpu = vendor_hpu()
        return hpu is not None and bool(hpu.is_available())

    @staticmethod
    def get_device_name() -> str:
        """Return the name of the card, for example ``"GAUDI2"``. This acquires a card."""
        hpu = vendor_hpu()
        return "" if hpu is None else str(hpu.get_device_name())

    @staticmethod
    def is_fp8_available() -> tuple[bool, str]:
        """Return whether the machine's cards support FP8 training and, if not, why."""
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
        """Register the accelerator with Lightning as ``"hpu"``."""
        accelerator_registry.register(cls.name(), cls, description="Intel Gaudi", override=True)

    @staticmethod
    def name() -> str:
        """Return the name to use in ``Trainer(accelerator=...)``."""
        return "hpu"
