"""The accelerator: which cards Lightning sees, and what it may ask of them."""

from __future__ import annotations

from typing import Any

import torch

from hpu_magic.errors import RefusedError
from hpu_magic.lightning.fp8 import require_fp8

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
    wanted = _number_of_cards(devices)
    if wanted == 1:
        return 1
    hpu = vendor_hpu()
    there = 0 if hpu is None else int(hpu.device_count())
    if wanted is None or (wanted == -1 and there <= 1):
        return 1
    if wanted > there:
        raise RefusedError(
            f"devices={devices!r} cannot be had: this machine has "
            f"{there} card{'' if there == 1 else 's'}."
        )
    raise RefusedError(
        f"devices={devices!r} cannot be had: training on several cards is not supported yet, "
        "so write devices=1."
    )


def _number_of_cards(devices: object) -> int | None:
    """Return how many cards are asked for, -1 for all, and None where it is left open."""
    if devices == "auto":
        return None
    if isinstance(devices, str):
        names = [name.strip() for name in devices.split(",") if name.strip()]
        if not all(name.lstrip("-").isdecimal() for name in names):
            raise RefusedError(
                f"devices={devices!r} is neither a number nor a list of numbers: write devices=1."
            )
        listed = [int(name) for name in names]
        if "," not in devices and len(listed) == 1:
            return _checked_count(devices, listed[0])
        return _length(devices, listed)
    if isinstance(devices, int) and not isinstance(devices, bool):
        return _checked_count(devices, devices)
    if isinstance(devices, list | tuple) and all(type(index) is int for index in devices):
        return _length(devices, list(devices))
    raise RefusedError(
        f"devices={devices!r} is neither a number nor a list of numbers: write devices=1."
    )


def _checked_count(devices: object, count: int) -> int:
    if count == 0 or count < -1:
        raise RefusedError(f"devices={devices!r} is no number of cards: write devices=1.")
    return count


def _length(devices: object, indices: list[int]) -> int:
    if not indices:
        raise RefusedError(f"devices={devices!r} names no card: write devices=1.")
    if len(indices) == 1 and indices != [0]:
        raise RefusedError(
            f"devices={devices!r} cannot be had: a process sees its own card as hpu:0, so write "
            "devices=1 and choose the card with the environment variable HABANA_VISIBLE_MODULES."
        )
    if len(set(indices)) < len(indices):
        raise RefusedError(f"devices={devices!r} names a card twice: write devices=1.")
    return len(indices)


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
    def get_device_name() -> str:
        """Return the name of the card, ``"GAUDI2"`` for example; this acquires it."""
        hpu = vendor_hpu()
        return "" if hpu is None else str(hpu.get_device_name())

    @staticmethod
    def is_fp8_available() -> tuple[bool, str]:
        """Return whether the machine's cards compute in 8 bits, and why not."""
        try:
            require_fp8()
        except RefusedError as refusal:
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
