"""The peak of the device's memory for several observers, though the device keeps only one.

Whoever starts that statistic anew takes it from all others who read it. Here its value is noted
for those who are still observing before it is reset.
"""

from __future__ import annotations

import sys
import threading
import weakref

from hpu_magic.runtime.device import device

# Weak: whoever never closes a peak has no use for it once it is gone.
_observed: weakref.WeakSet[Peak] = weakref.WeakSet()
_lock = threading.Lock()


class Peak:
    """Most bytes in use between `open` and `close`, whatever is reset by `reset` in between."""

    def __init__(self) -> None:
        self._bytes = 0

    def open(self) -> None:
        """Begin; the device's own statistic starts anew."""
        with _lock:
            _restart()
            self._bytes = _in_use_and_most()[0]
            _observed.add(self)

    def close(self) -> int:
        """End, and return the most bytes in use since `open`; 0 without a card."""
        with _lock:
            _observed.discard(self)
            self._note()
        return self._bytes

    def _note(self) -> None:
        self._bytes = max(self._bytes, *_in_use_and_most())


def reset() -> None:
    """Start the device's statistic anew; peaks that are open keep what they have seen."""
    with _lock:
        _restart()


def _restart() -> None:
    if device.taken():
        for one in _observed:
            one._note()
        sys.modules["torch"].hpu.reset_peak_memory_stats()


def _in_use_and_most() -> tuple[int, int]:
    """Return both statistics; right after a reset the second may read 0."""
    if not device.taken():
        return 0, 0
    stats = sys.modules["torch"].hpu.memory_stats()
    return stats["InUse"], stats["MaxInUse"]
