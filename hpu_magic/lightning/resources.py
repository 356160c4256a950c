"""Counterparts of ``lightning_habana.utils``, which describe the machine's cards and versions."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning.accelerator import HPUAcceleratorBase
from hpu_magic.lightning.processes.devices import vendor_hpu
from hpu_magic.runtime.device import device as card


def has_vendor_package() -> bool:
    """Return whether ``habana_frameworks`` is importable."""
    return vendor_hpu() is not None


def has_quantization_toolkit() -> bool:
    """Return whether the predecessor of Neural Compressor is installed."""
    return importlib.util.find_spec("habana_quantization_toolkit") is not None


def has_torchvision() -> bool:
    """Return whether torchvision is installed."""
    return importlib.util.find_spec("torchvision") is not None


def device_count() -> int:
    """Return the number of cards in the machine, without acquiring one."""
    return HPUAcceleratorBase.auto_device_count()


def device_stats(device: torch.device | str | int) -> dict[str, Any]:
    """Return the device's memory statistics: sizes in bytes, and allocation counts."""
    return HPUAcceleratorBase().get_device_stats(device)


def is_fp8_available() -> tuple[bool, str]:
    """Return whether the machine's cards support FP8 training and, if not, why."""
    return HPUAcceleratorBase.is_fp8_available()


def is_fp16_available() -> tuple[bool, str]:
    """Return whether the machine's cards support float16 and, if not, why."""
    if card.generation() == "GAUDI":
        return False, "float16 needs a Gaudi2 or later card, but this machine has GAUDI."
    return True, ""


@functools.cache
def release() -> str:
    """Return the vendor's release, such as ``"1.24.1"``, or ``"0.0.0"`` if it is not installed."""
    try:
        installed = importlib.metadata.version("habana-torch-plugin")
    except importlib.metadata.PackageNotFoundError:
        return "0.0.0"
    return ".".join(map(str, _numbers(installed)[:3]))


def versions_in(line: str) -> tuple[str, str]:
    """Return the driver and firmware versions in the output of ``hl-smi -v``; "" if missing."""
    matches = (re.search(rf"{name}-([\d.]+)", line) for name in ("hl", "fw"))
    driver, firmware = (match.group(1) if match else "" for match in matches)
    return driver, firmware


def count_of(devices: object) -> int | None:
    """Convert a Trainer's `devices` argument to an integer; None is returned as is.

    Raises
    ------
    HPUError
        `devices` is neither a number nor a string.
    """
    if devices is None:
        return None
    if not isinstance(devices, int | str):
        raise HPUError(f"devices={devices!r} is neither a number nor a string; write devices=1.")
    return int(devices)


def edit_json(file_path: str | os.PathLike[str], patch: Mapping[str, Any]) -> None:
    """Update entries of the object in a JSON file."""
    path = Path(file_path)
    entries = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**entries, **patch}), encoding="utf-8")


def is_at_least(package: str, version: str) -> bool:
    """Return whether a package has at least this version; ``"synapse"`` is the vendor's release."""
    try:
        installed = release() if package == "synapse" else importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return _numbers(installed) >= _numbers(version)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


SYNAPSE_1_11, SYNAPSE_1_14 = (is_at_least("synapse", version) for version in ("1.11.0", "1.14.0"))
"""Whether the vendor's release is 1.11 or newer, and 1.14 or newer."""
TORCH_2_0 = is_at_least("torch", "2.0.0")
TORCH_UP_TO_1_13 = not is_at_least("torch", "1.13.2")
TORCH_BEFORE_2_3 = not is_at_least("torch", "2.3.0")
LIGHTNING_2_0, LIGHTNING_2_3 = (
    is_at_least("lightning", version) or is_at_least("pytorch-lightning", version)
    for version in ("2.0.0", "2.3.0")
)
