"""What a panel keeps of a run: lines, validation points, marks and the card's limit."""

from __future__ import annotations

import math
from collections import deque

from hpu_magic.panels.trace import Trace, Window
from hpu_magic.runtime.measure.sampler import MEMORY, Mark, Sampler

__all__ = ["COLUMNS", "Row", "RunRecord"]

COLUMNS = ("time", "train", "speed", "in_use", "peak")
SERIES = ("train", "speed", MEMORY, "validation")
Row = tuple[float, ...]
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
        self.new_validation: list[tuple[float, float]] = []
        self.marks: list[Mark] = []
        self.limit = math.nan
        self.peak = math.nan
        self._cursors = {name: sampler.cursor(name) for name in SERIES}
        self._mark_cursor = sampler.marks()[1]
        self._latest: dict[str, float] = {}

    def take(self, now: float | None = None) -> list[tuple[Row, str]]:
        """Read what is new: a row for each sample of memory, or of speed where there is none.

        Parameters
        ----------
        now
            Adds a row for this moment, which has what is newest.

        Returns
        -------
        list of (tuple, str)
            The rows and what became of each, see `Trace.add`.
        """
        new = {name: self._read(name) for name in SERIES}
        self.new_validation = [(moment - self.began, loss) for moment, loss in new["validation"]]
        self.validation = (self.validation + self.new_validation)[-_POINTS_KEPT:]
        taken = []
        for moment, *memory in new[MEMORY] or [(moment,) for moment, _ in new["speed"]]:
            self._advance(new, moment)
            if memory:
                self._note_memory(*memory)
            taken.append(self._add_row(moment))
        self._advance(new, math.inf)
        if now is not None:
            taken.append(self._add_row(now))
        return taken

    def new_marks(self) -> list[Mark]:
        """Return the marks since the last call, times counted from the start of the run."""
        marks, self._mark_cursor = self._sampler.marks(self._mark_cursor)
        new = [Mark(mark.time - self.began, mark.kind, mark.text) for mark in marks]
        self.marks.extend(new)
        del self.marks[:-_MARKS_DRAWN]
        return new

    def _read(self, name: str) -> deque[Row]:
        columns, self._cursors[name] = self._sampler.read(name, self._cursors[name])
        return deque(zip(*columns.values(), strict=True))

    def _advance(self, new: dict[str, deque[Row]], moment: float) -> None:
        """Make loss and speed those of a moment."""
        for name in ("train", "speed"):
            while new[name] and new[name][0][0] <= moment:
                self._latest[name] = new[name].popleft()[1]

    def _note_memory(self, in_use: float, peak: float, limit: float) -> None:
        self._latest.update(in_use=in_use, peak=peak)
        self.limit = limit
        self.peak = peak if math.isnan(self.peak) else max(self.peak, peak)

    def _add_row(self, moment: float) -> tuple[Row, str]:
        row = (moment - self.began, *(self._latest.get(name, math.nan) for name in COLUMNS[1:]))
        return row, self.lines.add(*row)
