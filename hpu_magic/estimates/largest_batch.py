"""The largest batch that fits, found with few traces: memory grows nearly evenly with the batch."""

from __future__ import annotations

import math
from collections.abc import Callable

MOST = 1 << 20
"""No larger batch is looked for."""

_FIRST_STEP = 16
"""Of two batches far apart, the slope tells what a sample takes; beside weights it is little."""


def largest_batch(memory_of: Callable[[int], int], limit: int, start: int) -> int:
    """Return the largest batch whose memory is at most `limit` bytes; 0 if not even 1 fits.

    Parameters
    ----------
    memory_of : callable
        Peak bytes of a batch; does not fall as the batch grows. Each call is a trace.
    limit : int
        Bytes.
    start : int
        A batch to begin with.
    """
    known: dict[int, int] = {}
    fits, fails = 0, MOST + 1
    guess = max(1, min(start, MOST))
    while fails - fits > 1:
        before = fails - fits
        known[guess] = memory_of(guess)
        if known[guess] <= limit:
            fits = guess
        else:
            fails = guess
        # Where a straight line leads nowhere, halving does.
        halved = (fails - fits) * 2 <= before
        straight = halved or len(known) < 6
        guess = _on_line(known, fits, fails, limit) if straight else _between(fits, fails)
        guess = min(max(guess, fits + 1), fails - 1)
    return fits


def _on_line(known: dict[int, int], fits: int, fails: int, limit: int) -> int:
    """Return the batch that reaches the limit on the line through the nearest ones around it.

    Where all known ones lie on one side, through the two nearest there.
    """
    if len(known) == 1:
        return _FIRST_STEP * fits if fits else fails // 2
    if fits in known and fails in known:
        one, other = fits, fails
    else:
        one, other = sorted(known, key=lambda batch: abs(batch - (fits or fails)))[:2]
    slope = (known[other] - known[one]) / (other - one)
    if slope <= 0:
        return 2 * max(known)
    return math.floor(one + (limit - known[one]) / slope + 1e-9) + (known[one] <= limit)


def _between(fits: int, fails: int) -> int:
    return math.isqrt(fits * fails) if fits and fails > 4 * fits else (fits + fails) // 2
