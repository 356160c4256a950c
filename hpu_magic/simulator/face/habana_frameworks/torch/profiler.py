"""Deprecated names of `utils.profiler`."""

from __future__ import annotations

import warnings
from typing import Any

from habana_frameworks.torch.utils import profiler


class ProfilerApi:
    """Deprecated: use `torch.profiler.profile`."""

    @staticmethod
    def setup_profiler(**options: Any) -> None:
        """Prepare a profile with the options of `torch.profiler.profile`."""
        _warn("setup_profiler")
        profiler._setup_profiler(**options)

    @staticmethod
    def start_profiler() -> None:
        """Start the prepared profile."""
        _warn("start_profiler")
        profiler._start_profiler()

    @staticmethod
    def stop_profiler() -> Any:
        """Stop the profile and return it."""
        _warn("stop_profiler")
        return profiler._stop_profiler()


def _warn(name: str) -> None:
    warnings.warn(
        f"ProfilerApi.{name} is deprecated; use torch.profiler.profile.",
        FutureWarning,
        stacklevel=3,
    )
