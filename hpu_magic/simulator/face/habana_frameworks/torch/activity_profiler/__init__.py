"""PyTorch's profiler with what the bridge did: compilations, fallbacks, synchronisations."""

from habana_frameworks.torch.activity_profiler._profile import (
    DebugActivity,
    ProfilerActivity,
    install,
    profile,
)

__all__ = ["DebugActivity", "ProfilerActivity", "profile"]
