"""The last day of every card: a coarse history, and who held which card when."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf
from typing import Any

from hpu_magic.server.history import History
from hpu_magic.server.holdings import Holdings

LENGTH = 24 * 3600.0
"""Seconds that are kept."""

DEFAULT_INTERVAL = 20.0
SHORTEST, LONGEST = 2.0, 3600.0
"""Seconds between the samples that are kept."""

_METRICS = ("memory_used", "utilization")
_GAP = 3
"""Intervals without a sample after which nobody knows what was in between."""


class LongHistory:
    """At most one sample an interval, and the spans in which holders held cards.

    The memory is set aside once for each card: ``16 * LENGTH / interval`` bytes, 70 KiB at the
    default interval, and at most some hundred bytes for each of the last `holdings.SPANS` holders.

    Parameters
    ----------
    interval : float
        Seconds between the samples that are kept.
    """

    def __init__(self, interval: float = DEFAULT_INTERVAL) -> None:
        self.interval = interval
        self._latest = -inf
        self._begun = inf
        self._begin()

    def observe(self, record: Mapping[str, Any]) -> None:
        """Keep a sample if the interval is over, and in any case who holds the cards."""
        time: float = record["time"]
        if time < self._latest - _GAP * self.interval:
            # The clock was set back; times must rise along the axis.
            self._begin()
        self._begun = min(self._begun, time)
        self._holdings.observe(record)
        # A tenth of slack: timers are not exact.
        if time >= self._latest + 0.9 * self.interval:
            self._samples.append(record)
            self._holdings.forget_before(time - LENGTH)
            self._latest = time

    def message(self, since: float, now: float) -> dict[str, Any]:
        """Return what came after `since`: samples as columns, and spans that reached into it.

        ``begun`` is the time of the first sample; who asks with a `since` of another run of the
        server sees by it that all begins anew.
        """
        return {
            "interval": self.interval,
            "length": LENGTH,
            "begun": None if self._begun == inf else self._begun,
            **self._samples.columns(since),
            # A span is seen last at any of the finer samples, so a little before the coarse one.
            "holders": self._holdings.since(since - _GAP * self.interval, now),
        }

    def _begin(self) -> None:
        self._samples = History(ceil(LENGTH / self.interval), _METRICS)
        self._holdings = Holdings(_GAP * self.interval)
        self._latest, self._begun = -inf, inf
