"""Connects the native engine with the card driver and with PyTorch."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path

from habana_frameworks.torch import (
    _banner,
    _first_generation,
    _flags,
    _float16,
    _lazy_access,
    _limits,
    _narrow_types,
    _operator_lists,
)
from habana_frameworks.torch._mode import is_lazy, tell

import torch
from hpu_magic.simulator import cards, engine
from hpu_magic.simulator.activation import GpuPresent, TooLate
from hpu_magic.simulator.cards.configuration import Configuration
from hpu_magic.simulator.cards.page import COUNTERS_OFFSET

FLOAT8_E4M3FN_LIMIT = {"GAUDI": 240.0, "GAUDI2": 240.0, "GAUDI3": 448.0}
# Most operations that are recorded before they run.
_GRAPH_LIMITS = ("PT_HPU_MAX_COMPOUND_OP_SIZE", "PT_HPU_MAX_ACCUM_SIZE")
_NO_LIMIT = 2**63 - 1
# The CPU's names for what the vendor's bridge has a kernel for under names of its own.
_CPU_NAMES = [
    "convolution",
    "convolution_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
]
# Names of the lists from before autocast, and PyTorch's for the same.
_AUTOCAST_NAMES = {"cross_entropy": "cross_entropy_loss"}
_loaded = False
# Taken once and never released: threads that need their first tensor at once all get here.
_shown = threading.Lock()


def load() -> None:
    """Load the engine, once, and hand it the driver and the autocast lists.

    Raises
    ------
    GpuPresent
        PyTorch uses a GPU of this machine.
    TooLate
        PyTorch settled earlier that this process has no such device.
    OperatorListError
        A list for autocast holds something else than names of operators.
    """
    global _loaded
    if _loaded:
        return
    native = engine.load()
    if not native.make_room_beside_cuda():
        raise GpuPresent
    if not _is_accelerator():
        raise TooLate
    native.set_driver(_acquire)
    native.set_chooser(cards.choose)
    native.set_narrow_types(*narrow_types())
    native.set_autocast_operators(
        _operators("lower_precision", "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "LOWER_LIST"),
        _operators("fp32", "PT_HPU_AUTOCAST_FP32_OPS_LIST", "FP32_LIST"),
        _operators("promote"),
    )
    native.set_operators(_device_operators(), os.environ.get("PT_HPU_PLACE_ON_CPU", ""))
    native.define_operators_of_mode(lazy=is_lazy())
    if is_lazy():
        native.set_lazy(min(int(os.environ.get(name, _NO_LIMIT)) for name in _GRAPH_LIMITS))
        _lazy_access.install()
    if _generation() == "GAUDI":
        _float16.refuse_in_autocast()
        _first_generation.refuse_operators()
        native.set_lacking_types(_first_generation.LACKING_TYPES)
    if lacking := _limits.sentence():
        print(f"hpu_magic: {lacking}", file=sys.stderr)
    tell()
    _loaded = True


def narrow_types() -> _narrow_types.NarrowTypes:
    """Return which 64-bit types this process's card keeps in 32 bits."""
    return _narrow_types.of(lazy=is_lazy(), generation=_generation())


def _generation() -> str:
    return Configuration.from_environment().generation


def _device_operators() -> list[str]:
    """Operators with a device kernel in release 1.19 of the vendor's bridge, by its own table."""
    return (Path(__file__).parent / "device_operators.txt").read_text().split() + _CPU_NAMES


def _is_accelerator() -> bool:
    chosen = torch.accelerator.current_accelerator()
    return chosen is not None and chosen.type == "hpu"


def _acquire() -> tuple[object, int, int, float]:
    percentage, kept = _flags.pool_percentage(), _flags.kept_for_collectives()
    card = cards.acquire()
    pool = max(card.capacity * percentage // 100 - kept, 0)
    if _shown.acquire(blocking=False):
        _banner.show()
    return card.page, COUNTERS_OFFSET, pool, FLOAT8_E4M3FN_LIMIT[card.generation]


def _operators(kind: str, *variables: str) -> list[str]:
    """Operator names of the file that the first of the variables names; else the vendor's own."""
    for variable in variables:
        if path := os.environ.get(variable):
            try:
                return [_AUTOCAST_NAMES.get(name, name) for name in _operator_lists.read(path)]
            except OSError as unreadable:
                warnings.warn(
                    f"{variable}: {unreadable}; the default list stays in force.", stacklevel=2
                )
                break
    return _operator_lists.defaults(kind)
