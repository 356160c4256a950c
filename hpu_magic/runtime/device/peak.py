"""Track the device's peak memory for multiple observers.

The device keeps a single peak value, and a reset clears it for every reader. This module saves the
value for all observers before it resets the statistic, and also keeps the peak since the user's
last reset.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from hpu_magic.runtime.device import device

_RESETS = ("reset_peak_memory_stats", "reset_accumulated_memory_stats")
# Weak references, so that a Peak that is never closed is dropped together with its owner.
_observed: weakref.WeakSet[Peak] = weakref.WeakSet()
_lock = threading.Lock()
_before = 0  # peak in bytes between the user's last reset and our last reset
_seen = 0  # last peak read from the device; a lower reading means that the statistic was reset
_ours = threading.local()


def since_reset() -> int:
    """Return the peak in bytes since the user's last reset or the start, or 0 without a card."""
    with _lock:
        return max(_device_peak(), _before)


class Peak:
    """The peak between `open` and `close`, unaffected by other resets."""

    def __init__(self) -> None:
        self._bytes = 0

    def open(self, *, reset: bool = True) -> None:
        """Start tracking; without `reset`, include the peak since the user's last reset."""
        with _lock:
            if reset:
                _restart()
            peak = _device_peak()
            self._bytes = peak if reset else max(peak, _before)
            _observed.add(self)

    def so_far(self) -> int:
        """Return the peak in bytes since `open`, or 0 without a card."""
        with _lock:
            self._note()
        return self._bytes

    def close(self) -> int:
        """Stop tracking and return the peak in bytes since `open`, or 0 without a card."""
        with _lock:
            _observed.discard(self)
            self._note()
        return self._bytes

    def _note(self) -> None:
        self._bytes = max(self._bytes, _device_peak())


def _restart() -> None:
    global _before, _seen
    if device.taken():
        hpu = sys.modules["torch"].hpu
        _notice_resets(hpu)
        _before = max(_before, _device_peak())
        _note_all()
        _ours.resetting = True
        try:
            hpu.reset_peak_memory_stats()
        finally:
            _ours.resetting = False
        _seen = 0


def _note_all() -> None:
    for peak in _observed:
        peak._note()


def _device_peak() -> int:
    """Return the peak in bytes since the statistic was last reset, or 0 without a card."""
    global _before, _seen
    memory = device.memory()
    if memory is None:
        return 0
    if memory.peak < _seen:  # the user called a saved reference to the original reset function
        _before = 0
    _seen = memory.peak
    return max(memory.in_use, memory.peak)  # right after a reset, the statistic may be 0


def _notice_resets(hpu: Any) -> None:
    """Replace the vendor's reset functions with wrappers that record the user's resets."""
    for module in (hpu, getattr(hpu, "memory", None)):
        for name in _RESETS:
            reset = getattr(module, name, None)
            if reset is not None and not hasattr(reset, "notes_peak"):
                setattr(module, name, _noting(reset))


def _noting(reset: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(reset)
    def noted(*args: Any, **kwargs: Any) -> None:
        global _before, _seen
        if getattr(_ours, "resetting", False):
            reset(*args, **kwargs)
            return
        with _lock:
            _note_all()
            reset(*args, **kwargs)
            _before = _seen = 0

    noted.notes_peak = True  # type: ignore[attr-defined]
    return noted
