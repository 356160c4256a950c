"""How many cards ``devices=...`` asks for, and how many processes somebody else has started."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from hpu_magic.errors import HPUError

_GIVEN_BY_LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MPI = "OMPI_COMM_WORLD_SIZE"


def vendor_hpu() -> Any | None:
    """Return ``habana_frameworks.torch.hpu``, or None where it cannot be imported."""
    try:
        import habana_frameworks.torch.hpu as hpu
    except ModuleNotFoundError as missing:
        if missing.name is not None and missing.name.startswith("habana_frameworks"):
            return None
        raise
    return hpu


def card(device: Any) -> torch.device:
    """Return the device with its index, as its tensors have it."""
    named = torch.device(device)
    return torch.device("hpu", 0) if named == torch.device("hpu") else named


def is_interactive() -> bool:
    """Return whether somebody types into this process: a notebook, IPython or Python's prompt."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def started_by_others() -> bool:
    """Return whether this is one of several processes, each told its rank by who started it.

    ``torchrun`` tells it, and ``%%hpu_workers``; what ``mpirun`` says, the vendor's package
    passes on.
    """
    if _MPI in os.environ:
        import habana_frameworks.torch.distributed.hccl  # noqa: F401 (sets the variables)
    return all(os.environ.get(variable) for variable in _GIVEN_BY_LAUNCHERS)


def processes_here(nodes: int) -> int:
    """Return how many of the processes that others have started are on this machine."""
    here = os.environ.get("LOCAL_WORLD_SIZE")
    return int(here) if here else max(int(os.environ["WORLD_SIZE"]) // nodes, 1)


def number_of_cards(devices: object) -> int:
    """Return how many cards `devices` asks for.

    Parameters
    ----------
    devices : object
        A number, -1 or ``"auto"`` for all cards of the machine, or the first indices in a list; as
        text, too.

    Raises
    ------
    HPUError
        It asks for anything else, or for more cards than there are.
    """
    hpu = vendor_hpu()
    there = 0 if hpu is None else int(hpu.device_count())
    wanted = _asked_for(devices)
    if wanted == -1:
        return max(there, 1)
    if wanted > max(there, 1):
        raise HPUError(
            f"devices={devices!r} cannot be had: this machine has "
            f"{there} card{'' if there == 1 else 's'}."
        )
    return wanted


def _asked_for(devices: object) -> int:
    """Return how many cards are asked for, and -1 for all."""
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
        raise HPUError(f"devices={devices!r} is no number of cards: write devices=1.")
    return count


def _length(devices: object, indices: list[int]) -> int:
    if not indices:
        raise HPUError(f"devices={devices!r} names no card: write devices=1.")
    if len(set(indices)) < len(indices):
        raise HPUError(
            f"devices={devices!r} names a card twice: write devices={len(set(indices))}."
        )
    if sorted(indices) != list(range(len(indices))):
        raise HPUError(
            f"devices={devices!r} cannot be had: a process sees its own card as hpu:0, so write "
            f"devices={len(indices)} and choose the card{'s' if len(indices) > 1 else ''} with the "
            "environment variable HABANA_VISIBLE_MODULES."
        )
    return len(indices)
