"""What a panel keeps of a run: lines, validation points, marks and the card's limit."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from hpu_magic.panels.trace import Trace, Window
from hpu_magic.runtime.measure.not_finite import NotFinite
from hpu_magic.runtime.measure.peak import Peak
from hpu_magic.runtime.measure.progress import FitProgress
from hpu_magic.runtime.measure.sampler import MEMORY, Mark, Sampler

__all__ = ["COLUMNS", "News", "Row", "RunRecord"]

COLUMNS = ("time", "train", "speed", "in_use", "peak")
SERIES = ("train", "speed", MEMORY, "validation")
Row = tuple[float, ...]
_POINTS_KEPT = 200
_MARKS_DRAWN = 60


@dataclass(frozen=True)
class News:
    """What a run brought since the last look.

    Attributes
    ----------
    rows
        New rows and what became of each, see `Trace.add`.
    validation
        Time and loss of each validation.
    logged
        Name, time and value of what was logged, and what became of each.
    marks
        Epochs and compilations.
    """

    rows: list[tuple[Row, str]]
    validation: list[tuple[float, float]]
    logged: list[tuple[str, float, float, str]]
    marks: list[Mark]


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
    progress
        The fit that it is, which names its logged values; None where there is no fit.
    memory
        Whether the run uses the device, so that its memory and compilations are the run's.
    peak
        Observes the device's memory for the run, whatever else resets the device's own peak.
    """

    def __init__(
        self,
        sampler: Sampler,
        began: float,
        lines: Trace | Window | None = None,
        *,
        progress: FitProgress | None = None,
        memory: bool = True,
        peak: Peak | None = None,
    ) -> None:
        self._sampler = sampler
        self._progress = progress
        self._marked = ("epoch", "compilation") if memory else ("epoch",)
        self._peak = peak
        self.began = began
        self.lines = Trace(COLUMNS) if lines is None else lines
        self.validation: list[tuple[float, float]] = []
        self.new_validation: list[tuple[float, float]] = []
        self.marks: list[Mark] = []
        self.logged: dict[str, Trace] = {}
        self.limit = math.nan
        self.peak = math.nan
        self._series = tuple(one for one in SERIES if memory or one != MEMORY)
        self._cursors = {name: sampler.cursor(name) for name in self._series}
        self._mark_cursor = sampler.marks()[1]
        self._latest: dict[str, float] = {}

    def news(self, now: float | None = None) -> News:
        """Read what is new; see `take`."""
        rows = self.take(now)
        return News(rows, self.new_validation, self.new_logged(), self.new_marks())

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
        new = {name: self._read(name) for name in self._series}
        self.new_validation = [(moment - self.began, loss) for moment, loss in new["validation"]]
        self.validation = (self.validation + self.new_validation)[-_POINTS_KEPT:]
        taken = []
        samples = new.get(MEMORY) or [(moment,) for moment, _ in new["speed"]]
        for place, (moment, *memory) in enumerate(samples, 1):
            self._advance(new, moment)
            if memory:
                self._note_memory(*memory, newest=place == len(samples))
            taken.append(self._add_row(moment))
        self._advance(new, math.inf)
        if now is not None:
            taken.append(self._add_row(now))
        return taken

    def new_logged(self) -> list[tuple[str, float, float, str]]:
        """Read what was logged since the last call: name, time, value and what became of each."""
        taken = []
        for name in list(self._progress.curves) if self._progress is not None else ():
            trace = self.logged.setdefault(name, Trace(("time", "value")))
            self._cursors.setdefault(logged_series(name), 0)
            for moment, value in self._read(logged_series(name)):
                row = (moment - self.began, value)
                taken.append((name, *row, trace.add(*row)))
        return taken

    @property
    def not_finite(self) -> list[NotFinite]:
        """What became NaN or infinite."""
        return [] if self._progress is None else self._progress.not_finite

    def close(self) -> None:
        """Let the sampler drop what only this run has."""
        for name in self.logged:
            self._sampler.forget(logged_series(name))

    def new_marks(self) -> list[Mark]:
        """Return the marks since the last call, times counted from the start of the run."""
        marks, self._mark_cursor = self._sampler.marks(self._mark_cursor)
        new = [
            Mark(one.time - self.began, one.kind, one.text)
            for one in marks
            if one.kind in self._marked
        ]
        self.marks.extend(new)
        del self.marks[:-_MARKS_DRAWN]
        return new

    def _read(self, name: str) -> deque[Row]:
        columns, self._cursors[name] = self._sampler.read(name, self._cursors[name])
        return deque(zip(*(map(_drawn, column) for column in columns.values()), strict=True))

    def _advance(self, new: dict[str, deque[Row]], moment: float) -> None:
        """Make loss and speed those of a moment."""
        for name in ("train", "speed"):
            while new[name] and new[name][0][0] <= moment:
                self._latest[name] = new[name].popleft()[1]

    def _note_memory(self, in_use: float, peak: float, limit: float, *, newest: bool) -> None:
        """Note a sample; the device's own peak may fall, as anybody may reset it."""
        self.limit = limit
        self.peak = peak if math.isnan(self.peak) else max(self.peak, peak)
        if self._peak is not None:
            # What fell between two samples is known only now, to whoever observes.
            peak = self.peak = max(self.peak, in_use, self._peak.so_far() if newest else 0.0)
        self._latest.update(in_use=in_use, peak=peak)

    def _add_row(self, moment: float) -> tuple[Row, str]:
        row = (moment - self.began, *(self._latest.get(name, math.nan) for name in COLUMNS[1:]))
        return row, self.lines.add(*row)


def logged_series(name: str) -> str:
    """Return under which name the sampler has a logged value."""
    return f"logged {name}"


def _drawn(value: float) -> float:
    """Return a number as it is drawn: what is not finite leaves a gap."""
    return value if math.isfinite(value) else math.nan
