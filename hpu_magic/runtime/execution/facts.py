"""Report the mode, card and memory of this process to front ends.

Other threads call these functions, even while a cell is running or torch is being imported. This
module never imports torch, acquires a card or waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import hpu_magic
from hpu_magic import backend
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.peak import since_reset
from hpu_magic.runtime.execution import mode


@dataclass(frozen=True)
class Facts:
    """The state of this process; missing or unknown values are None."""

    version: str
    simulated: bool
    loaded: str | None
    requested: str | None
    """The mode loaded in this process, and the mode that the next process will load."""
    card: int | None = None  # module ID of the card that this process holds
    in_use: int | None = None
    peak: int | None = None
    limit: int | None = None
    """Device memory in bytes."""


def facts() -> Facts:
    """Return the current state of this process."""
    simulated = backend.is_simulated()
    requested = mode.requested_mode()
    loaded = mode.loaded_mode()
    if device.importing() or not device.taken():
        return Facts(hpu_magic.__version__, simulated, loaded, requested)
    number = device.own_number()
    return Facts(hpu_magic.__version__, simulated, loaded, requested, number, *_memory())


def _memory() -> tuple[int | None, int | None, int | None]:
    try:
        memory = device.memory()
        return (memory.in_use, since_reset(), memory.limit) if memory else (None, None, None)
    except RuntimeError:  # the card was lost
        return None, None, None
