"""Load the native engine, and connect it to the card driver and to PyTorch."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path

from habana_frameworks.torch import (
    _banner,
    _card_types,
    _first_generation,
    _flags,
    _lazy_access,
    _limits,
    _operator_lists,
    _operator_namespace,
)
from habana_frameworks.torch._flags import export_mode, is_lazy

import torch
from hpu_magic.simulator import card_time, cards, engine
from hpu_magic.simulator.activation import GpuPresent, TooLateError
from hpu_magic.simulator.cards.configuration import Configuration
from hpu_magic.simulator.cards.page import COUNTERS_OFFSET
from hpu_magic.simulator.dry_run import start as dry_run

# Flags that limit the number of operations that lazy mode records before executing them.
_GRAPH_LIMITS = ("PT_HPU_MAX_COMPOUND_OP_SIZE", "PT_HPU_MAX_ACCUM_SIZE")
# Operators that run on the CPU, and that have different names in the vendor's bridge.
_CPU_NAMES = [
    "convolution",
    "convolution_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
]
# Operator names from the vendor's older lists, mapped to PyTorch's names.
_AUTOCAST_NAMES = {"cross_entropy": "cross_entropy_loss"}
_loaded = False
# Acquired once and never released, so that the banner is printed only once even if several threads
# create their first tensor at the same time.
_banner_lock = threading.Lock()


def load() -> None:
    """Load and configure the engine, unless it is already loaded.

    Raises
    ------
    GpuPresent
        PyTorch uses a GPU on this machine.
    TooLateError
        PyTorch has already determined that no HPU is available in this process.
    OperatorListError
        An autocast list contains a line that is not an operator name.
    """
    global _loaded
    if _loaded:
        return
    native = engine.load()
    if not native.remove_cuda_accelerator():
        raise GpuPresent
    if not _is_accelerator():
        raise TooLateError
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
    _operator_namespace.install()
    if is_lazy():
        no_limit = _flags.DEFAULTS["PT_HPU_MAX_COMPOUND_OP_SIZE"]
        native.set_lazy(
            min(int(os.environ.get(name, no_limit)) for name in _GRAPH_LIMITS),
            captures_collectives=_flags.is_on("PT_HPU_ENABLE_LAZY_COLLECTIVES"),
        )
        _lazy_access.install()
    if _generation() == "GAUDI":
        _first_generation.refuse_float16_in_autocast()
        _first_generation.refuse_operators()
        native.set_unsupported_types(_first_generation.LACKING_TYPES)
    if limits := _limits.sentence():
        print(f"hpu_magic: {limits}", file=sys.stderr)
    export_mode()
    card_time.start_if_requested()
    if dry_run.is_on():
        dry_run.start(native)
    _loaded = True


def narrow_types() -> _card_types.NarrowTypes:
    """Return the 64-bit dtypes that this process's card stores in 32 bits."""
    return _card_types.narrow_types(lazy=is_lazy(), generation=_generation())


def _generation() -> str:
    return Configuration.from_environment().generation


def _device_operators() -> list[str]:
    """Return the operators that have a device kernel, as listed in release 1.19 of the bridge."""
    return (Path(__file__).parent / "device_operators.txt").read_text().split() + _CPU_NAMES


def _is_accelerator() -> bool:
    try:
        chosen = torch.accelerator.current_accelerator()
    except RuntimeError:  # PyTorch 2.6 raises an error without an accelerator
        return False
    return chosen is not None and chosen.type == "hpu"


def _acquire() -> tuple[object, int, int, float]:
    if dry_run.is_on():
        dry_run.check_owner()
    percentage, reserved = _flags.pool_percentage(), _flags.reserved_for_collectives()
    card = cards.acquire()
    pool = max(card.capacity * percentage // 100 - reserved, 0)
    if not dry_run.is_on() and _banner_lock.acquire(blocking=False):
        _banner.show()
    return card.page, COUNTERS_OFFSET, pool, _card_types.E4M3FN_MAX[card.generation]


def _operators(kind: str, *variables: str) -> list[str]:
    """Read names from the file in the first variable that is set, or return the defaults."""
    for variable in variables:
        if path := os.environ.get(variable):
            try:
                return [_AUTOCAST_NAMES.get(name, name) for name in _operator_lists.read(path)]
            except OSError as unreadable:
                warnings.warn(f"{variable}: {unreadable}; using the default list.", stacklevel=2)
                break
    return _operator_lists.defaults(kind)
