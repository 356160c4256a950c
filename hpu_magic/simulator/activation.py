"""Activates the simulator, unless the vendor's package is installed."""

from __future__ import annotations

import importlib
import os
import sys

from hpu_magic import units
from hpu_magic.simulator.cards import Configuration, hl_smi
from hpu_magic.simulator.cards.configuration import card_time_host
from hpu_magic.simulator.finder import install_finder, vendor_package

SWITCH = "HPU_MAGIC_SIMULATOR"
_requested = False


class TooLateError(RuntimeError):
    """PyTorch has already decided that this process has no ``hpu`` device."""

    def __init__(self) -> None:
        super().__init__(
            "PyTorch has already decided that this process has no hpu device (it decides at the "
            "first backward() or torch.accelerator query); restart Python, and turn the simulator "
            "on earlier, preferably before 'import torch'."
        )


class GpuPresent(RuntimeError):
    """PyTorch is already using a GPU; a process can use only one type of accelerator."""

    def __init__(self) -> None:
        super().__init__(
            "PyTorch is using this machine's GPU, and a process can use only one type of "
            "accelerator; hide the GPU with CUDA_VISIBLE_DEVICES= (an empty value) before Python "
            "starts, or install PyTorch's CPU build."
        )


def is_requested() -> bool:
    """Return whether the simulator is on, or will be turned on by ``import torch``."""
    return _requested or os.environ.get(SWITCH, "").strip().lower() in {"1", "true", "yes", "on"}


def activate(*, announce: bool = True) -> None:
    """Make ``hpu`` a simulated device in this process.

    If torch has already been imported, the engine is loaded now; otherwise, it is loaded during
    ``import torch``. The engine is compiled the first time it is used on this machine. A card is
    not acquired until the first tensor is created. Further calls have no effect.

    Parameters
    ----------
    announce : bool
        Whether to print a one-time message to stderr saying that the device is simulated.

    Raises
    ------
    RuntimeError
        The vendor's package is installed, or the engine cannot be compiled.
    GpuPresent
        PyTorch is using a GPU in this machine.
    TooLateError
        PyTorch has already selected the accelerator of this process.
    ValueError
        An environment variable has an invalid value.
    """
    global _requested
    if real := vendor_package():
        raise RuntimeError(
            f"The vendor's habana_frameworks is installed ({real}), and the simulator never "
            "replaces it; to use the simulator, create an environment without it."
        )
    Configuration.from_environment()
    card_time_host()
    install_finder()
    hl_smi.offer()
    if announce and not _requested:
        print(f"hpu_magic: {announcement()}", file=sys.stderr)
    _requested = True
    if is_imported("torch"):
        importlib.import_module("habana_frameworks.torch")


def announcement() -> str:
    """Return a line that describes the simulated cards."""
    cards = Configuration.from_environment()
    count = "1 card" if cards.count == 1 else f"{cards.count} cards"
    return (
        f"No Gaudi driver package found: the hpu device is SIMULATED on the CPU "
        f"({count}, {cards.generation}, {units.capacity(cards.capacity)} each)."
    )


def is_imported(name: str) -> bool:
    """Return whether a module has been imported completely."""
    if name not in sys.modules:
        return False
    spec = getattr(sys.modules[name], "__spec__", None)
    return not getattr(spec, "_initializing", False)
