"""A genuine ``hpu`` device on any machine: card, driver and vendor package, simulated.

Importing this package loads nothing: `activate` (or ``HPU_MAGIC_SIMULATOR=1``)
asks for the simulator, and the engine comes in with ``import torch``.
"""

from __future__ import annotations

from hpu_magic.simulator.activation import GpuPresent, TooLate, activate, announcement, is_requested

__all__ = ["GpuPresent", "TooLate", "activate", "announcement", "is_requested"]
