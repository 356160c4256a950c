"""Determine how many cards ``devices=...`` selects, and how many processes a launcher started."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from hpu_magic.errors import HPUError

_SET_BY_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MPI = "OMPI_COMM_WORLD_SIZE"


def vendor_hpu() -> Any | None:
    """Return ``habana_frameworks.torch.hpu``, or None if it cannot be imported."""
    try:
        import habana_frameworks.torch.hpu as hpu
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("habana_frameworks"):
            return None
        raise
    return hpu


def card(device: Any) -> torch.device:
    """Return a device with the index that its tensors have: ``hpu`` becomes ``hpu:0``."""
    named = torch.device(device)
    return torch.device("hpu", 0) if named == torch.device("hpu") else named


def is_interactive() -> bool:
    """Return whether this process is a notebook, IPython or the Python prompt."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def started_by_others() -> bool:
    """Return whether a launcher has started this process and set its rank.

    ``torchrun`` and ``%%hpu_workers`` set the environment variables themselves. For ``mpirun``, the
    vendor's package sets them.
    """
    if _MPI in os.environ:
        import habana_frameworks.torch.distributed.hccl  # noqa: F401 (sets the variables)
    return all(os.environ.get(variable) for variable in _SET_BY_LAUNCHERS)


def processes_here(nodes: int) -> int:
    """Return the number of processes that a launcher has started on this machine."""
    here = os.environ.get("LOCAL_WORLD_SIZE")
    return int(here) if here else max(int(os.environ["WORLD_SIZE"]) // nodes, 1)


def number_of_cards(devices: object) -> int:
    """Return the number of cards that `devices` specifies.

    `devices` is a number of cards, -1 or ``"auto"`` for all cards in the machine, or a list of
    indices that starts at 0. Numbers and lists may also be passed as strings.

    Raises
    ------
    HPUError
        `devices` is invalid, or the machine has fewer cards.
    """
    hpu = vendor_hpu()
    cards = 0 if hpu is None else int(hpu.device_count())
    requested = _requested(devices)
    if requested == -1:
        return max(cards, 1)
    if requested > max(cards, 1):
        raise HPUError(
            f"devices={devices!r} was requested, but this machine has "
            f"{cards} card{'' if cards == 1 else 's'}."
        )
    return requested


def _requested(devices: object) -> int:
    """Return the requested number of cards, or -1 for all cards."""
    if devices == "auto":
        return -1
    if isinstance(devices, str):
        names = [name.strip() for name in devices.split(",") if name.strip()]
        if all(name.removeprefix("-").isdecimal() for name in names):
            listed = [int(name) for name in names]
            if "," not in devices and len(listed) == 1:
                return _checked_count(devices, listed[0])
            return _length(devices, listed)
    elif isinstance(devices, int) and not isinstance(devices, bool):
        return _checked_count(devices, devices)
    elif isinstance(devices, list | tuple) and all(type(index) is int for index in devices):
        return _length(devices, list(devices))
    raise HPUError(
        f"devices={devices!r} is neither a number nor a list of numbers: write devices=1."
    )


def _checked_count(devices: object, count: int) -> int:
    if count == 0 or count < -1:
        raise HPUError(f"devices={devices!r} is not a number of cards: write devices=1.")
    return count


def _length(devices: object, indices: list[int]) -> int:
    if not indices:
        raise HPUError(f"devices={devices!r} does not contain any cards: write devices=1.")
    if len(set(indices)) < len(indices):
        raise HPUError(
            f"devices={devices!r} contains a card twice: write devices={len(set(indices))}."
        )
    if sorted(indices) != list(range(len(indices))):
        raise HPUError(
            f"devices={devices!r} is not supported: each process sees its card as hpu:0, so write "
            f"devices={len(indices)} and select the card{'s' if len(indices) > 1 else ''} with the "
            "environment variable HABANA_VISIBLE_MODULES."
        )
    return len(indices)
