"""Parse device arguments, and environment variables that list cards."""

from __future__ import annotations

import os
from typing import Any

import torch
from hpu_magic.simulator import engine


def named_index(device: Any, allow_cpu: bool = False) -> int | None:
    """Return the index in ``"hpu:1"``, ``torch.device("hpu", 1)`` or ``1`` (None if missing).

    With `allow_cpu`, the index of the CPU is -1. Raises ValueError for other device types.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        return None
    if allow_cpu and device.type == "cpu":
        return -1
    if device.type != "hpu":
        expected = "hpu or cpu" if allow_cpu else "hpu"
        raise ValueError(f"Expected a {expected} device, but got: {device}")
    return device.index


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of `device`; with `allow_cpu`, the index of the CPU is -1.

    If `device` has no index and `optional` is true, acquire the card and return its index. Raises
    ValueError for other device types, or if a required index is missing.
    """
    index = named_index(device, allow_cpu)
    if index is not None:
        return index
    if not optional:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got:{device}"
        )
    engine.load().acquire()
    return 0


def _get_module_id_from_environ() -> int:
    """Return the card number in ``HLS_MODULE_ID``, or -1 if it is not set."""
    return int(os.environ.get("HLS_MODULE_ID") or -1)


def _get_available_modules_from_environ() -> list[int]:
    """Return the card numbers in ``HABANA_VISIBLE_MODULES``, which defaults to 0 through 7.

    Raises AssertionError if the variable is not a list of one to eight numbers.
    """
    listed = os.environ.get("HABANA_VISIBLE_MODULES")
    if listed is None:
        return list(range(8))
    modules = [part.strip() for part in listed.split(",")]
    if not (1 <= len(modules) <= 8 and all(part.isdigit() for part in modules)):
        raise AssertionError(
            "HABANA_VISIBLE_MODULES does not have valid value. "
            f"Use 1 to 8 comma-separated numbers instead of {listed!r}."
        )
    return [int(part) for part in modules]
