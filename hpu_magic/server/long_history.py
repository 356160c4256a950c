"""The last 24 hours of each card: a coarse history, and the spans during which it was held."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf
from typing import Any

from hpu_magic.server.history import History
from hpu_magic.server.holdings import Holdings

LENGTH = 24 * 3600.0
"""Length of the history, in seconds."""

DEFAULT_INTERVAL = 20.0
SHORTEST, LONGEST = 2.0, 3600.0
"""Allowed range for the interval between stored samples, in seconds."""

_METRICS = ("memory_used", "utilization")
_GAP = 3
"""Number of intervals without a sample after which the values count as unknown."""


class LongHistory:
    """Stores at most one sample per interval (in seconds), and the spans of holders.

    The memory for a card is allocated only once; it takes ``16 * LENGTH / interval`` bytes, or 70
    KiB with the default interval. Each stored holder adds a few hundred bytes; at most
    `holdings.SPANS` are stored.
    """

    def __init__(self, interval: float = DEFAULT_INTERVAL) -> None:
        self.interval = interval
        self._latest = -inf
        self._begun = inf
        self._begin()

    def observe(self, record: Mapping[str, Any]) -> None:
        """Record the holders in a sample, and store the sample if the interval has passed."""
        time: float = record["time"]
        if time < self._latest - _GAP * self.interval:
            # The clock was set back, so start over, because times must increase.
            self._begin()
        self._begun = min(self._begun, time)
        self._holdings.observe(record)
        # Timers are not exact, so accept intervals that are up to 10 % too short.
        if time >= self._latest + 0.9 * self.interval:
            self._samples.append(record)
            self._holdings.forget_before(time - LENGTH)
            self._latest = time

    def message(self, since: float, now: float) -> dict[str, Any]:
        """Return samples after `since` as columns, and spans that had not ended at that time.

        Clients recognize a restarted server by ``begun``, which is the time of the first sample.
        """
        return {
            "interval": self.interval,
            "length": LENGTH,
            "begun": None if self._begun == inf else self._begun,
            **self._samples.columns(since),
            # A span ends at the time of a fine sample, shortly before the coarse sample.
            "holders": self._holdings.since(since - _GAP * self.interval, now),
        }

    def _begin(self) -> None:
        self._samples = History(ceil(LENGTH / self.interval), _METRICS)
        self._holdings = Holdings(_GAP * self.interval)
        self._latest, self._begun = -inf, inf
