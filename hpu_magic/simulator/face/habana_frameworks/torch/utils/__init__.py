"""Utilities for the bridge."""

from habana_frameworks.torch.utils import (
    debug,
    event_dispatcher,
    experimental,
    internal,
    lib_utils,
    library_loader,
    profiler,
    version_checker,
)
