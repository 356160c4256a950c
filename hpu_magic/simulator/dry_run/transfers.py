"""The time that a card spends on collectives and messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from hpu_magic.simulator.card_time import Record


def is_transfer(record: Record) -> bool:
    """Return whether a record is a collective; names of operators contain a namespace."""
    return "::" not in record.name and not record.name.startswith("graph of ")


class Spans:
    """Intervals of time, which may overlap."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def during(self, start: float, end: float) -> float:
        """Return how many seconds of the interval from `start` to `end` these intervals cover."""
        total = 0.0
        for each in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[each] >= end:
                break
            total += min(end, self._ends[each]) - max(start, self._starts[each])
        return total
