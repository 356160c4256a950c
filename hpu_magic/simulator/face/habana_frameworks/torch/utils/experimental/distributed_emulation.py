"""Emulate one of several ranks on a single card, with ``PT_HPU_EMULATE_DISTRIBUTED``."""

from __future__ import annotations

import os
import sys
from typing import Any

from habana_frameworks.torch import _flags

_SINGLE_RANK = "PT_HPU_EMULATE_DISTRIBUTED_SINGLE_RANK"


def is_distributed_emulation_enabled() -> bool:
    """Return whether ``PT_HPU_EMULATE_DISTRIBUTED`` is on."""
    return _flags.is_on("PT_HPU_EMULATE_DISTRIBUTED")


def distributed_emulation_apply_if_enabled() -> None:
    """Exit unless this process is the emulated rank, which then runs without barriers.

    The function has no effect unless ``PT_HPU_EMULATE_DISTRIBUTED_SINGLE_RANK`` is set. Raises
    KeyError if ``RANK`` is not set.
    """
    emulated = os.environ.get(_SINGLE_RANK)
    if not is_distributed_emulation_enabled() or not emulated:
        return
    if "RANK" not in os.environ:
        print(f"{_SINGLE_RANK}={emulated} requires RANK, which is not set.")
    rank = os.environ["RANK"]
    if int(rank) != int(emulated):
        print(f"Single rank emulation mode, rank {rank} terminating")
        sys.stdout.flush()
        sys.exit(0)
    import torch.distributed.distributed_c10d as c10d

    c10d._store_based_barrier = _no_barrier


def _no_barrier(*arguments: Any, **options: Any) -> None:
    """Return without waiting, because the other ranks have exited."""
