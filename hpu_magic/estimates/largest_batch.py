"""Search for the largest batch with few traces, as memory is nearly linear in batch size."""

from __future__ import annotations

import math
from collections.abc import Callable

MOST = 1 << 20
"""The largest batch size that the search considers."""

_FIRST_STEP = 16
"""Ratio of the first two batch sizes to try; it is large because one sample needs little memory."""


def largest_batch(memory_of: Callable[[int], int], limit: int, start: int) -> int:
    """Return the largest batch size that needs at most ``limit`` bytes; 0 if none fits.

    ``memory_of`` traces the model with a batch size and returns the peak memory in bytes, which
    must not decrease as the batch grows. ``start`` is the first batch size to try.
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
        # Fall back to bisection if linear interpolation does not converge.
        halved = (fails - fits) * 2 <= before
        straight = halved or len(known) < 6
        guess = _on_line(known, fits, fails, limit) if straight else _between(fits, fails)
        guess = min(max(guess, fits + 1), fails - 1)
    return fits


def _on_line(known: dict[int, int], fits: int, fails: int, limit: int) -> int:
    """Interpolate between the nearest known batch sizes to predict which one reaches the limit.

    If all known batch sizes are on the same side of the limit, extrapolate from the nearest two.
    """
    if len(known) == 1:
        return _FIRST_STEP * fits if fits else fails // 2
    if fits in known and fails in known:
        first, second = fits, fails
    else:
        first, second = sorted(known, key=lambda batch: abs(batch - (fits or fails)))[:2]
    slope = (known[second] - known[first]) / (second - first)
    if slope <= 0:
        return 2 * max(known)
    return math.floor(first + (limit - known[first]) / slope + 1e-9) + (known[first] <= limit)


def _between(fits: int, fails: int) -> int:
    return math.isqrt(fits * fails) if fits and fails > 4 * fits else (fits + fails) // 2
