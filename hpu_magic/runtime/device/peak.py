"""The peak of the device's memory for several observers, though the device keeps only one.

Whoever resets that statistic takes it from all others who read it. Here its value is noted for
those who are still observing before it is reset, and the user's own peak, since their own last
reset, is kept above the resets of hpu_magic.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from hpu_magic.runtime.device import device

_RESETS = ("reset_peak_memory_stats", "reset_accumulated_memory_stats")
# Weak: whoever never closes a peak has no use for it once it is gone.
_observed: weakref.WeakSet[Peak] = weakref.WeakSet()
_lock = threading.Lock()
_before = 0  # most bytes in use since the user's last reset, up to ours
_seen = 0  # the device's statistic when it was last read; a lower one was reset
_ours = threading.local()


def since_reset(stats: Mapping[str, int]) -> int:
    """Return the most bytes in use since the start or the user's own last reset.

    Parameters
    ----------
    stats : mapping
        ``torch.hpu.memory_stats()`` of this moment.
    """
    with _lock:
        return max(_noticed(stats), _before)


class Peak:
    """Most bytes in use between `open` and `close`, whatever others reset in between."""

    def __init__(self) -> None:
        self._bytes = 0

    def open(self, *, anew: bool = True) -> None:
        """Begin, `anew` or with the peak since the user's own last reset."""
        with _lock:
            if anew:
                _restart()
            most = _most()
            self._bytes = most if anew else max(most, _before)
            _observed.add(self)

    def so_far(self) -> int:
        """Return the most bytes in use since `open`; 0 without a card."""
        with _lock:
            self._note()
        return self._bytes

    def close(self) -> int:
        """End, and return the most bytes in use since `open`; 0 without a card."""
        with _lock:
            _observed.discard(self)
            self._note()
        return self._bytes

    def _note(self) -> None:
        self._bytes = max(self._bytes, _most())


def _restart() -> None:
    global _before, _seen
    if device.taken():
        hpu = sys.modules["torch"].hpu
        _notice_resets(hpu)
        _before = max(_before, _most())
        _note_all()
        _ours.resetting = True
        try:
            hpu.reset_peak_memory_stats()
        finally:
            _ours.resetting = False
        _seen = 0


def _note_all() -> None:
    for one in _observed:
        one._note()


def _most() -> int:
    """Return the most bytes in use since the device's last reset; 0 without a card."""
    return _noticed(sys.modules["torch"].hpu.memory_stats()) if device.taken() else 0


def _noticed(stats: Mapping[str, int]) -> int:
    """Return the most bytes in use, and notice a reset; right after one, the peak may read 0."""
    global _before, _seen
    if stats["MaxInUse"] < _seen:  # by a function that was looked up before it was replaced
        _before = 0
    _seen = stats["MaxInUse"]
    return max(stats["InUse"], stats["MaxInUse"])


def _notice_resets(hpu: Any) -> None:
    """Replace the vendor's functions by ones that note what the user resets."""
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
