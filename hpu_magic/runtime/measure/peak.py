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
    """Most bytes in use between `open` and `close`, whatever others reset in between."""

    def __init__(self) -> None:
        self._bytes = 0

    def open(self, *, anew: bool = True) -> None:
        """Begin; the device's own statistic starts `anew`, or counts as it is."""
        with _lock:
            if anew:
                _restart()
            in_use, most = _in_use_and_most()
            self._bytes = in_use if anew else max(in_use, most)
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
        self._bytes = max(self._bytes, *_in_use_and_most())


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
