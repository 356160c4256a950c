"""A run in a fixed number of rows: the whole of it, or its end."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

Row = tuple[float, ...]


@dataclass
class Change:
    """What became of a trace.

    Attributes
    ----------
    rows
        Rows that were added to its end.
    thinned
        Whether those before have changed as well.
    """

    rows: list[Row] = field(default_factory=list)
    thinned: bool = False

    def __bool__(self) -> bool:
        return bool(self.rows) or self.thinned

    def __iadd__(self, other: Change) -> Change:
        self.rows += other.rows
        self.thinned |= other.thinned
        return self


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
        Rows kept at most, an even number of at least 4.
    goal
        ``min`` or ``max``: which value of the last column is best. The best row is always kept; it
        is added together with the next row that is kept.
    """

    def __init__(
        self, columns: tuple[str, ...], capacity: int = 1000, goal: str | None = None
    ) -> None:
        if capacity < 4 or capacity % 2:
            raise ValueError(f"a trace keeps an even number of rows, at least 4, not {capacity}")
        self.columns = columns
        self.capacity = capacity
        self.stride = 1
        self.best: Row | None = None
        self._sign = {None: 0, "min": -1, "max": 1}[goal]
        self._given = 0
        self._rows: list[Row] = []
        self._last: Row | None = None
        self._better: Row | None = None  # the best of the rows skipped since the last one kept

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *row: float) -> Change:
        """Take one row and return what became of the rows."""
        change = Change()
        if _is_gap(row):
            if self._rows and not _is_gap(self._rows[-1]):
                self._keep(change, row)
            return change
        self._given += 1
        self._last = row
        if (self._given - 1) % self.stride == 0:
            self._keep_with_better(change, row)
        elif self._is_better(row):
            self._better = row
        return change

    def end(self) -> Change:
        """Keep the last row, too, as no others follow, and return what became of the rows."""
        change = Change()
        if self._last is not None and self._last not in self._rows[-2:]:
            self._keep_with_better(change, self._last)
        return change

    def last(self) -> Row | None:
        """Return the newest row."""
        return self._rows[-1] if self._rows else None

    def cut(self, time: float) -> None:
        """Drop the rows after a time."""
        while self._rows and self._rows[-1][0] > time:
            self._rows.pop()

    def _keep_with_better(self, change: Change, row: Row) -> None:
        better, self._better = self._better, None
        if better is not None and better != row:
            self._keep(change, better)
        self._keep(change, row)

    def _keep(self, change: Change, row: Row) -> None:
        if len(self._rows) == self.capacity:
            self._thin()
            change.thinned = True
        self._rows.append(row)
        change.rows.append(row)
        if self._is_better(row):
            self.best = row

    def _is_better(self, row: Row) -> bool:
        """Tell whether a row is better than all before it, skipped ones too."""
        best = self._better or self.best
        value = self._sign * row[-1]
        if not self._sign or not math.isfinite(value):
            return False
        return best is None or value > self._sign * best[-1]

    def data(self) -> dict[str, list[float]]:
        """Return the columns."""
        return _columns(self.columns, self._rows)

    def _thin(self) -> None:
        """Drop every second row that is no gap, and gaps between which nothing is left."""
        kept: list[Row] = []
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
    """The newest ``capacity`` rows over time."""

    def __init__(self, columns: tuple[str, ...], capacity: int) -> None:
        self.columns = columns
        self.capacity = capacity
        self._rows: deque[Row] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *row: float) -> Change:
        """Take one row and return what became of the rows: a gap next to another is not kept."""
        if _is_gap(row) and (not self._rows or _is_gap(self._rows[-1])):
            return Change()
        self._rows.append(row)
        return Change([row])

    def last(self) -> Row | None:
        """Return the newest row."""
        return self._rows[-1] if self._rows else None

    def cut(self, time: float) -> None:
        """Drop the rows after a time."""
        while self._rows and self._rows[-1][0] > time:
            self._rows.pop()

    def data(self) -> dict[str, list[float]]:
        """Return the columns."""
        return _columns(self.columns, list(self._rows))


def _is_gap(row: Row) -> bool:
    return all(map(math.isnan, row[1:]))


def _columns(names: tuple[str, ...], rows: list[Row]) -> dict[str, list[float]]:
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
