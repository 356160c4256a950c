"""Find the device of this process, and the processes that a launcher started."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

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
    """Return a device with the index that its tensors have, ``hpu:0`` for ``hpu``."""
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
