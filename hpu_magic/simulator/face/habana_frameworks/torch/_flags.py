"""The bridge's main flags, as they were when it was loaded: later changes are not in force."""

from __future__ import annotations

import os

from habana_frameworks.torch._mode import is_lazy

_DEFAULTS = {
    "PT_HPU_LAZY_MODE": str(int(is_lazy())),
    "PT_HPU_RECIPE_CACHE_CONFIG": ",false,1024,false",
    "PT_HPU_MAX_COMPOUND_OP_SIZE": str(2**63 - 1),
    "PT_HPU_LAZY_ACC_PAR_MODE": "1",
    "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "false",
    "PT_HPU_EAGER_PIPELINE_ENABLE": "true",
    "PT_HPU_EAGER_4_STAGE_PIPELINE_ENABLE": "true",
    "PT_HPU_EAGER_COLLECTIVE_PIPELINE_ENABLE": "true",
    "PT_HPU_ENABLE_LAZY_COLLECTIVES": "false",
    "PT_HPU_INFERENCE_MODE": "false",
    "PT_HPU_PLACE_ON_CPU": "",
    "PT_HPU_POOL_MEM_ACQUIRE_PERC": "100",
}

_KEPT = "PT_HCCL_MEMORY_ALLOWANCE_MB"

IN_FORCE = {name: os.environ.get(name, default) for name, default in _DEFAULTS.items()}
"""Values by name: the environment's, or the default of release 1.23."""


def pool_percentage() -> int:
    """Return how much of a card's memory the allocator takes.

    Raises
    ------
    ValueError
        The flag is no whole number from 1 to 100.
    """
    text = IN_FORCE["PT_HPU_POOL_MEM_ACQUIRE_PERC"].strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100):
        raise ValueError(
            f"PT_HPU_POOL_MEM_ACQUIRE_PERC={text!r} is no percentage of the card's memory; "
            "write a whole number from 1 to 100."
        )
    return int(text)


def kept_for_collectives() -> int:
    """Return how many bytes of a card the allocator leaves free; none for one process.

    Raises
    ------
    ValueError
        The flag is no number of megabytes.
    """
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        return 0
    text = os.environ.get(_KEPT, "0").strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(
            f"{_KEPT}={text!r} is no size; write a whole number of megabytes that are kept for "
            "collectives."
        )
    return int(text) << 20


def is_on(name: str, *, default: bool = False) -> bool:
    """Tell whether a switch is set in the environment."""
    text = os.environ.get(name, "").strip().lower()
    return text in ("1", "true", "yes", "on") if text else default
