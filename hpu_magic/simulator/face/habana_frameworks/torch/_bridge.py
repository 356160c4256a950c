"""Connects the native engine with the card driver and with PyTorch."""

from __future__ import annotations

import os
import warnings

import torch
from hpu_magic.simulator import cards, engine
from hpu_magic.simulator.activation import TooLate
from hpu_magic.simulator.page import COUNTERS_OFFSET

from . import _autocast_lists

_FLOAT8_E4M3FN_LIMIT = {"GAUDI": 240.0, "GAUDI2": 240.0, "GAUDI3": 448.0}
_loaded = False


def load() -> None:
    """Load the engine, once, and hand it the driver and the autocast lists.

    Raises
    ------
    TooLate
        PyTorch settled earlier that this process has no such device.
    """
    global _loaded
    if _loaded:
        return
    native = engine.load()
    if not _is_accelerator():
        raise TooLate
    native.set_driver(_acquire)
    native.set_autocast_operators(
        _operators("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", _autocast_lists.LOWER),
        _operators("PT_HPU_AUTOCAST_FP32_OPS_LIST", _autocast_lists.FP32),
        list(_autocast_lists.PROMOTE),
    )
    # Backward runs on the thread that calls it: on a thread of its own, OpenMP would start a
    # second pool of workers there, and the two pools would fight for the cores.
    torch._C._set_multithreading_enabled(False)
    _loaded = True


def _is_accelerator() -> bool:
    chosen = torch.accelerator.current_accelerator()
    return chosen is not None and chosen.type == "hpu"


def _acquire() -> tuple[object, int, int, float]:
    card = cards.acquire()
    return card.page, COUNTERS_OFFSET, card.capacity, _FLOAT8_E4M3FN_LIMIT[card.generation]


def _operators(variable: str, default: tuple[str, ...]) -> list[str]:
    """Operator names of the file that `variable` names, one a line; else the default list."""
    path = os.environ.get(variable)
    if not path:
        return list(default)
    try:
        with open(path) as file:
            return [line.strip() for line in file if line.strip()]
    except OSError as unreadable:
        warnings.warn(f"{variable}: {unreadable}; the default list stays in force.", stacklevel=2)
        return list(default)
