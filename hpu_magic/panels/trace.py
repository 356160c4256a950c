"""A run in a fixed number of rows: the whole of it, or its end."""

from __future__ import annotations

import math
from collections import deque

__all__ = ["Trace", "Window"]


class Trace:
    """Rows over time that cover a run from its start and never outgrow ``capacity``.

    When the rows are full, every second one is dropped and from then on only
    every second, fourth, ... row given is kept: the resolution halves, the
    length stays. A row of which nothing is known but its time is a gap, and kept.

    Parameters
    ----------
    columns
        Names of the columns; the first is the time.
    capacity
        Rows kept at most, an even number of at least 2.
    """

    def __init__(self, columns: tuple[str, ...], capacity: int = 1000) -> None:
        if capacity < 2 or capacity % 2:
            raise ValueError(f"a trace keeps an even number of rows, at least 2, not {capacity}")
        self.columns = columns
        self.capacity = capacity
        self.stride = 1
        self._given = 0
        self._rows: list[tuple[float, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *row: float) -> str:
        """Take one row.

        Returns
        -------
        str
            ``kept``, ``skipped``, or ``thinned`` when the rows kept so far have
            changed as well.
        """
        if _is_gap(row):
            if not self._rows or _is_gap(self._rows[-1]):
                return "skipped"
        else:
            self._given += 1
            if (self._given - 1) % self.stride:
                return "skipped"
        thinned = len(self._rows) == self.capacity
        if thinned:
            self._thin()
        self._rows.append(row)
        return "thinned" if thinned else "kept"

    def data(self) -> dict[str, list[float]]:
        """Return the columns."""
        return _columns(self.columns, self._rows)

    def _thin(self) -> None:
        """Drop every second row that is no gap, and gaps between which nothing is left."""
        kept: list[tuple[float, ...]] = []
        known = 0
        for row in self._rows:
            if not _is_gap(row):
                known += 1
                if known % 2:
                    kept.append(row)
            elif not _is_gap(kept[-1]):
                kept.append(row)
        self._rows = kept
        self.stride *= 2


class Window:
    """The newest ``capacity`` rows over time."""

    def __init__(self, columns: tuple[str, ...], capacity: int) -> None:
        self.columns = columns
        self.capacity = capacity
        self._rows: deque[tuple[float, ...]] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *row: float) -> str:
        """Take one row and return ``kept``, or ``skipped`` for a gap beside another."""
        if _is_gap(row) and (not self._rows or _is_gap(self._rows[-1])):
            return "skipped"
        self._rows.append(row)
        return "kept"

    def data(self) -> dict[str, list[float]]:
        """Return the columns."""
        return _columns(self.columns, list(self._rows))


def _is_gap(row: tuple[float, ...]) -> bool:
    return all(map(math.isnan, row[1:]))


def _columns(names: tuple[str, ...], rows: list[tuple[float, ...]]) -> dict[str, list[float]]:
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
