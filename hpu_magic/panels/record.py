"""What a panel keeps of a run: lines, validation points, marks and the card's limit."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hpu_magic.panels.trace import Trace, Window
from hpu_magic.runtime.sampler import MEMORY, Mark, Sampler

__all__ = ["COLUMNS", "RunRecord"]

COLUMNS = ("time", "train", "speed", "in_use", "peak")
SERIES = ("train", "speed", MEMORY, "validation")
_POINTS_KEPT = 200
_MARKS_DRAWN = 60


class RunRecord:
    """The history of one run, in bounded space, gathered from a sampler.

    Times are seconds since ``began``.

    Parameters
    ----------
    sampler
        Where the values come from; only what is newer than this record counts.
    began
        ``time.monotonic()`` at the start of the run.
    lines
        Keeps the rows: a `Trace` for a whole run, a `Window` for its end.
    """

    def __init__(self, sampler: Sampler, began: float, lines: Trace | Window | None = None) -> None:
        self._sampler = sampler
        self.began = began
        self.lines = Trace(COLUMNS) if lines is None else lines
        self.validation: list[tuple[float, float]] = []
        self.marks: list[Mark] = []
        self.limit = math.nan
        self.peak = math.nan
        self._cursors = {name: sampler.cursor(name) for name in SERIES}
        self._mark_cursor = sampler.marks()[1]
        self._latest: dict[str, float] = {}

    def take(self, now: float) -> tuple[tuple[float, ...], str]:
        """Read what is new; return the row for ``now`` and what became of it (see `Trace.add`)."""
        for name in SERIES:
            rows, self._cursors[name] = self._sampler.read(name, self._cursors[name])
            if rows and rows["time"]:
                self._take_rows(name, rows)
        row = (now - self.began, *(self._latest.get(name, math.nan) for name in COLUMNS[1:]))
        return row, self.lines.add(*row)

    def new_marks(self) -> list[Mark]:
        """Return the marks since the last call, times counted from the start of the run."""
        marks, self._mark_cursor = self._sampler.marks(self._mark_cursor)
        new = [Mark(mark.time - self.began, mark.kind, mark.text) for mark in marks]
        self.marks.extend(new)
        del self.marks[:-_MARKS_DRAWN]
        return new

    def _take_rows(self, name: str, rows: dict[str, list[float]]) -> None:
        if name == MEMORY:
            self._latest.update(in_use=rows["in_use"][-1], peak=rows["peak"][-1])
            self.limit = rows["limit"][-1]
            self.peak = _largest([self.peak, *rows["peak"]])
        elif name == "validation":
            times = (moment - self.began for moment in rows["time"])
            self.validation.extend(zip(times, rows["loss"], strict=True))
            del self.validation[:-_POINTS_KEPT]
        else:
            self._latest[name] = rows["loss" if name == "train" else "steps_per_second"][-1]


def _largest(numbers: Iterable[float]) -> float:
    return max((number for number in numbers if not math.isnan(number)), default=math.nan)
