"""PyTorch's profiler with what the bridge did: compilations, fallbacks, synchronisations."""

from ._profile import DebugActivity, ProfilerActivity, install, profile

__all__ = ["DebugActivity", "ProfilerActivity", "profile"]
