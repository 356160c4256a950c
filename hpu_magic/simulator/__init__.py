"""PyTorch's own ``hpu`` device with a simulated card, driver and vendor package.

Importing this package does not load anything. `activate` (or ``HPU_MAGIC_SIMULATOR=1``) turns the
simulator on, and ``import torch`` loads the engine.
"""

from __future__ import annotations

from hpu_magic.simulator.activation import (
    GpuPresent,
    TooLateError,
    activate,
    announcement,
    is_requested,
)

__all__ = ["GpuPresent", "TooLateError", "activate", "announcement", "is_requested"]
