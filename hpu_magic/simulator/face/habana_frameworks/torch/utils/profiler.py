"""Functions that start and stop the profiler."""

from __future__ import annotations

from typing import Any

from habana_frameworks.torch import activity_profiler

_prepared: Any = None
_running: Any = None


def _setup_profiler(**options: Any) -> None:
    """Prepare a profile with the options of `torch.profiler.profile`."""
    global _prepared
    _prepared = activity_profiler.profile(**options)


def _start_profiler() -> None:
    """Start the prepared profile; raise RuntimeError if none is prepared or one is running."""
    global _prepared, _running
    if _running is not None:
        raise RuntimeError("A profile is already running; call _stop_profiler() first.")
    if _prepared is None:
        raise RuntimeError("No profile has been set up; call _setup_profiler() first.")
    _prepared.start()
    _prepared, _running = None, _prepared


def _stop_profiler() -> Any:
    """Stop the running profile and return it; raise RuntimeError if no profile is running."""
    global _running
    if _running is None:
        raise RuntimeError("No profile is running; call _start_profiler() first.")
    stopped, _running = _running, None
    stopped.stop()
    return stopped
