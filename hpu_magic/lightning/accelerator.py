"""The accelerator: which cards Lightning sees, and what it may ask of them."""

from __future__ import annotations

from typing import Any

import torch

from hpu_magic.errors import RefusedError

__all__ = ["MEMORY_METRICS", "HPUAcceleratorBase", "vendor_hpu"]

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


def vendor_hpu() -> Any | None:
    """Return ``habana_frameworks.torch.hpu``, or None where it cannot be imported."""
    try:
        import habana_frameworks.torch.hpu as hpu
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("habana_frameworks"):
            return None
        raise
    return hpu


def _one_card(devices: object) -> int:
    """Return 1 when ``devices`` asks for the one card of this process.

    Raises
    ------
    RefusedError
        For anything else, with the mend.
    """
    if devices in (1, "1", "auto") and devices is not True:
        return 1
    if isinstance(devices, list | tuple) and list(devices) == [0]:
        return 1
    if isinstance(devices, str) and devices.strip(", ") == "0":
        return 1
    if isinstance(devices, list | tuple) and len(devices) == 1 and isinstance(devices[0], int):
        raise RefusedError(
            f"devices={devices!r} cannot be had: a process sees its own card as hpu:0, so write "
            "devices=1 and choose the card with the environment variable HABANA_VISIBLE_MODULES."
        )
    raise RefusedError(
        f"devices={devices!r} cannot be had: training on several cards is not supported yet, "
        "so write devices=1."
    )


class HPUAcceleratorBase:
    """What ``HPUAccelerator`` does, apart from the Lightning class it derives from."""

    def setup_device(self, device: torch.device) -> None:
        """Bring the card in for this process.

        Raises
        ------
        RefusedError
            When ``device`` is not an ``hpu`` device.
        """
        if device.type != "hpu":
            raise RefusedError(f"HPUAccelerator works on an hpu device, not on {str(device)!r}.")
        torch.hpu.set_device(device)  # type: ignore[attr-defined]

    def teardown(self) -> None:
        """Leave the card as it is: it belongs to the process until the process ends."""

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Return the documented memory statistics: bytes, and counts of allocations."""
        hpu = vendor_hpu()
        if hpu is None:
            return {}
        stats = hpu.memory_stats(device)
        return {name: stats[name] for name in MEMORY_METRICS if name in stats}

    @staticmethod
    def parse_devices(devices: object) -> int:
        """Return the number of cards asked for, which is 1.

        Raises
        ------
        RefusedError
            When more cards, or another card, are asked for.
        """
        return _one_card(devices)

    @staticmethod
    def get_parallel_devices(devices: object) -> list[torch.device]:
        """Return the one device a process has."""
        _one_card(devices)
        return [torch.device("hpu", 0)]

    @staticmethod
    def auto_device_count() -> int:
        """Return how many cards ``devices="auto"`` takes: one, without acquiring it."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Return whether there is a card, real or simulated, without acquiring it."""
        hpu = vendor_hpu()
        return hpu is not None and bool(hpu.is_available())

    @staticmethod
    def name() -> str:
        """Return the name for ``Trainer(accelerator=...)``."""
        return "hpu"
