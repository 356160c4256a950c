"""The most recent samples of each card, stored in a fixed amount of memory."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

CAPACITY = 600
"""Number of samples to store."""

METRICS = ("memory_used", "utilization", "temperature", "power")


class History:
    """One ring buffer per metric and card; missing values are stored as NaN."""

    def __init__(self, capacity: int = CAPACITY, metrics: Sequence[str] = METRICS) -> None:
        self._capacity = capacity
        self._metrics = metrics
        self._time = self._column()
        self._cards: dict[int, dict[str, array[float]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._capacity)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a sample, replacing the oldest one if the buffers are full."""
        place = self._count % self._capacity
        cards = {card["module_id"]: card for card in record["cards"]}
        for number in cards.keys() - self._cards.keys():
            self._cards[number] = {metric: self._column() for metric in self._metrics}
        self._time[place] = record["time"]
        for number, columns in self._cards.items():
            card = cards.get(number, {})
            for metric, column in columns.items():
                value = card.get(metric)
                column[place] = nan if value is None else value
        self._count += 1

    def columns(self, since: float = 0.0) -> dict[str, Any]:
        """Return the samples after `since` as columns, oldest first; missing values are None."""
        time = self._in_order(self._time)
        first = sum(each <= since for each in time)
        return {
            "time": time[first:],
            "cards": {
                str(number): {
                    metric: [_plain(value) for value in self._in_order(column)[first:]]
                    for metric, column in columns.items()
                }
                for number, columns in sorted(self._cards.items())
            },
        }

    def message(self) -> dict[str, Any]:
        """Return all samples as a message to be streamed."""
        return {"type": "history", **self.columns()}

    def _column(self) -> array[float]:
        return array("d", [nan]) * self._capacity

    def _in_order(self, column: array[float]) -> list[float]:
        if self._count <= self._capacity:
            return column[: self._count].tolist()
        place = self._count % self._capacity
        return (column[place:] + column[:place]).tolist()


def _plain(value: float) -> float | int | None:
    if isnan(value):
        return None
    return int(value) if value.is_integer() else value
