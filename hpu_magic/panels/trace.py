"""Store rows over time in bounded space, for an entire run or for its last part."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

Values = tuple[float, ...]
"""A row: the time, followed by a value for each of the other columns."""


@dataclass
class Change:
    """A change to a trace."""

    rows: list[Values] = field(default_factory=list)  # rows added at the end
    thinned: bool = False  # whether earlier rows have also changed

    def __bool__(self) -> bool:
        return bool(self.rows) or self.thinned

    def __iadd__(self, other: Change) -> Change:
        self.rows += other.rows
        self.thinned |= other.thinned
        return self


class Trace:
    """At most ``capacity`` rows that cover a run from its start.

    Whenever the trace is full, the resolution is halved: every second row is dropped, and from then
    on, only every second (then every fourth, and so on) new row is kept. A row that contains only a
    time is a gap and is always kept. The row with the best value in the last column, according to
    ``goal`` (``min`` or ``max``), is also kept: it is stored when the next row is stored. The first
    column is the time.
    """

    def __init__(
        self, columns: tuple[str, ...], capacity: int = 1000, goal: str | None = None
    ) -> None:
        if capacity < 4 or capacity % 2:
            raise ValueError(f"capacity must be an even number of at least 4, got {capacity}")
        self.columns = columns
        self.capacity = capacity
        self.stride = 1
        self.best: Values | None = None
        self._sign = {None: 0, "min": -1, "max": 1}[goal]
        self._added = 0
        self._rows: list[Values] = []
        self._last: Values | None = None
        self._better: Values | None = None  # the best of the rows skipped since the last kept row

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *row: float) -> Change:
        """Add one row and return the change."""
        change = Change()
        if _is_gap(row):
            if self._rows and not _is_gap(self._rows[-1]):
                self._keep(change, row)
            return change
        self._added += 1
        self._last = row
        if (self._added - 1) % self.stride == 0:
            self._keep_with_better(change, row)
        elif self._is_better(row):
            self._better = row
        return change

    def end(self) -> Change:
        """Keep the last row as well, because no rows follow it, and return the change."""
        change = Change()
        if self._last is not None and self._last not in self._rows[-2:]:
            self._keep_with_better(change, self._last)
        return change

    def last(self) -> Values | None:
        """Return the newest row."""
        return self._rows[-1] if self._rows else None

    def cut(self, time: float) -> None:
        """Drop the rows after a given time."""
        while self._rows and self._rows[-1][0] > time:
            self._rows.pop()

    def _keep_with_better(self, change: Change, row: Values) -> None:
        better, self._better = self._better, None
        if better is not None and better != row:
            self._keep(change, better)
        self._keep(change, row)

    def _keep(self, change: Change, row: Values) -> None:
        if len(self._rows) == self.capacity:
            self._thin()
            change.thinned = True
        self._rows.append(row)
        change.rows.append(row)
        if self._is_better(row):
            self.best = row

    def _is_better(self, row: Values) -> bool:
        """Return whether a row is better than all earlier rows, including skipped ones."""
        best = self._better or self.best
        value = self._sign * row[-1]
        if not self._sign or not math.isfinite(value):
            return False
        return best is None or value > self._sign * best[-1]

    def data(self) -> dict[str, list[float]]:
        """Return the columns."""
        return _columns(self.columns, self._rows)

    def _thin(self) -> None:
        """Drop every second row that is not a gap, and any gap that follows another gap."""
        kept: list[Values] = []
        known = 0
        for row in self._rows:
            if not _is_gap(row):
                known += 1
                if known % 2 or row is self.best:
                    kept.append(row)
            elif not _is_gap(kept[-1]):
                kept.append(row)
        self._rows = kept
        self.stride *= 2


class Window:
    """The newest ``capacity`` rows."""

    def __init__(self, columns: tuple[str, ...], capacity: int) -> None:
        self.columns = columns
        self.capacity = capacity
        self._rows: deque[Values] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *row: float) -> Change:
        """Add one row, unless it is a gap after another gap, and return the change."""
        if _is_gap(row) and (not self._rows or _is_gap(self._rows[-1])):
            return Change()
        self._rows.append(row)
        return Change([row])

    def last(self) -> Values | None:
        """Return the newest row."""
        return self._rows[-1] if self._rows else None

    def cut(self, time: float) -> None:
        """Drop the rows after a given time."""
        while self._rows and self._rows[-1][0] > time:
            self._rows.pop()

    def data(self) -> dict[str, list[float]]:
        """Return the columns."""
        return _columns(self.columns, list(self._rows))


def _is_gap(row: Values) -> bool:
    return all(map(math.isnan, row[1:]))


def _columns(names: tuple[str, ...], rows: list[Values]) -> dict[str, list[float]]:
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
