"""Flags of the bridge. The mode and `IN_FORCE` are read only once, on import."""

from __future__ import annotations

import functools
import os
from pathlib import Path

MODE = "PT_HPU_LAZY_MODE"


@functools.cache
def is_lazy() -> bool:
    """Return whether the process is in lazy mode; ``PT_HPU_LAZY_MODE`` is read only once."""
    return os.environ.get(MODE, "0") != "0"


def export_mode() -> None:
    """Set the mode's environment variable, unless the user has already set it.

    Libraries assume different defaults for this variable, and child processes must run in the same
    mode as their parent.
    """
    os.environ.setdefault(MODE, str(int(is_lazy())))


DEFAULTS = {
    MODE: str(int(is_lazy())),
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

_RESERVED = "PT_HCCL_MEMORY_ALLOWANCE_MB"

IN_FORCE = {name: os.environ.get(name, default) for name, default in DEFAULTS.items()}
"""Values of the flags by name, from the environment or from the defaults of release 1.24.1."""


def pool_percentage() -> int:
    """Return the percentage of a card's memory that the allocator may use, from 1 to 100."""
    text = IN_FORCE["PT_HPU_POOL_MEM_ACQUIRE_PERC"].strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100):
        raise ValueError(
            f"PT_HPU_POOL_MEM_ACQUIRE_PERC={text!r} is not a percentage of the card's memory; "
            "use an integer from 1 to 100."
        )
    return int(text)


def reserved_for_collectives() -> int:
    """Return the number of bytes to keep free for collectives; 0 if there is only one process."""
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        return 0
    text = os.environ.get(_RESERVED, "0").strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(
            f"{_RESERVED}={text!r} is not a size; specify the memory to reserve for collectives as "
            "an integer number of megabytes."
        )
    return int(text) << 20


def is_on(name: str, *, default: bool = False) -> bool:
    """Return whether a boolean flag is set in the environment."""
    text = os.environ.get(name, "").strip()
    return means_on(text) if text else default


def means_on(text: str) -> bool:
    """Return whether the value of a boolean flag means true."""
    return text.strip().lower() in ("1", "true", "yes", "on")


def logs_folder() -> Path:
    """Return the vendor's log folder: ``HABANA_LOGS``, or ``~/.habana_logs`` by default."""
    return Path(os.environ.get("HABANA_LOGS") or Path.home() / ".habana_logs")
