"""Turning the simulator on: once a process, and never in place of a real package."""

from __future__ import annotations

import importlib
import os
import sys

from hpu_magic import units
from hpu_magic.simulator.cards import Configuration, hl_smi
from hpu_magic.simulator.finder import install_finder, vendor_package

SWITCH = "HPU_MAGIC_SIMULATOR"
_requested = False


class TooLate(RuntimeError):
    """PyTorch has settled for this process that it has no ``hpu`` device."""

    def __init__(self) -> None:
        super().__init__(
            "PyTorch has already settled that this process has no hpu device (it decides at the "
            "first backward() or torch.accelerator query): restart, and turn the simulator on "
            "before that, best before 'import torch'."
        )


class GpuPresent(RuntimeError):
    """PyTorch uses a GPU, and a process has one kind of accelerator."""

    def __init__(self) -> None:
        super().__init__(
            "PyTorch uses this machine's GPU, and a process has one kind of accelerator: hide the "
            "GPU with CUDA_VISIBLE_DEVICES= (nothing behind the equals sign) before Python starts, "
            "or install PyTorch's build for the CPU."
        )


def is_requested() -> bool:
    """Tell whether the simulator is on or will be with ``import torch``."""
    return _requested or os.environ.get(SWITCH, "").strip().lower() in {"1", "true", "yes", "on"}


def activate(*, announce: bool = True) -> None:
    """Put the simulated device behind ``hpu`` in this process.

    With torch imported, the engine loads at once (and compiles at its first use
    on this machine); otherwise it loads as part of ``import torch``. No card is
    acquired before the first tensor. Calling it again does nothing.

    Parameters
    ----------
    announce : bool
        Say once, on standard error, that the device is simulated.

    Raises
    ------
    RuntimeError
        The vendor's own package is installed, or the engine cannot be compiled.
    GpuPresent
        PyTorch uses a GPU of this machine.
    TooLate
        PyTorch has already settled which accelerator this process has.
    ValueError
        An environment variable holds something else than it may.
    """
    global _requested
    if real := vendor_package():
        raise RuntimeError(
            f"The vendor's habana_frameworks is installed ({real}): the simulator never takes its "
            "place; use an environment without it to simulate."
        )
    Configuration.from_environment()
    install_finder()
    hl_smi.offer()
    if announce and not _requested:
        print(f"hpu_magic: {announcement()}", file=sys.stderr)
    _requested = True
    if "torch" in sys.modules and _is_complete("torch"):
        importlib.import_module("habana_frameworks.torch")


def announcement() -> str:
    """One line that says what is simulated."""
    cards = Configuration.from_environment()
    count = "1 card" if cards.count == 1 else f"{cards.count} cards"
    return (
        f"No Gaudi driver package here: the hpu device is SIMULATED on the CPU "
        f"({count}, {cards.generation}, {units.capacity(cards.capacity)} each)."
    )


def _is_complete(name: str) -> bool:
    spec = getattr(sys.modules[name], "__spec__", None)
    return not getattr(spec, "_initializing", False)
