"""The history of a run: pace and memory lines, metric curves, epochs and marks."""

from __future__ import annotations

import math
from bisect import bisect
from collections import deque
from dataclasses import dataclass, field

from hpu_magic.panels.trace import Change, Trace, Values, Window
from hpu_magic.runtime.device.peak import Peak
from hpu_magic.runtime.training.curves import Curve, Curves
from hpu_magic.runtime.training.not_finite import NotFinite
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import MEMORY, Mark, Sampler

COLUMNS = ("time", "step", "speed", "in_use", "peak")
CURVE_COLUMNS = ("time", "step", "epoch", "value")
EPOCH_COLUMNS = ("time", "step", "number", "length")
SERIES = ("speed", MEMORY, "epochs")
_MARKS_DRAWN = 60
_EPOCHS_DRAWN = 20
_GAP_INTERVALS = 5
_SHORTEST_GAP = 1.0  # seconds; shorter pauses are normal


@dataclass(frozen=True)
class News:
    """The changes to a record since the last call to `RunRecord.news`."""

    lines: Change  # new rows of the pace and memory charts
    curves: dict[Curve, Change] = field(default_factory=dict)  # changes to metric curves
    epochs: Change = field(default_factory=Change)  # changes to the list of epoch starts
    marks: list[Mark] = field(default_factory=list)  # new compilations


class RunRecord:
    """The history of one run, read from a sampler and kept in bounded space.

    Times are in seconds since ``began``, which is a value of ``time.monotonic()``. Values in the
    sampler that are older than this record are ignored. ``lines`` is a `Trace` for the entire run
    or a `Window` for its last part. ``progress`` is None if there is no fit. If ``memory`` is true,
    the run uses the device, and the record includes its memory and compilations. ``peak`` tracks
    the peak of device memory, because other code may reset the device's own peak.
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
        self._memory = memory
        self._peak = peak
        self.began = began
        self.lines = Trace(COLUMNS) if lines is None else lines
        self.curves: dict[Curve, Trace] = {}
        self.epochs = Trace(EPOCH_COLUMNS, _EPOCHS_DRAWN)
        self.marks: list[Mark] = []
        self.limit = math.nan
        self.peak = math.nan
        self._series = tuple(name for name in SERIES if memory or name != MEMORY)
        self._cursors = {name: sampler.cursor(name) for name in (*self._series, "train")}
        self._mark_cursor = sampler.marks()[1]
        self._latest: dict[str, float] = {}
        self._newest = math.nan

    @property
    def metrics(self) -> Curves:
        """The metrics of the fit."""
        return Curves() if self._progress is None else self._progress.curves

    def news(self, ended: float | None = None, peak: float | None = None) -> News:
        """Read new samples and return the changes.

        At the end of the run, pass ``ended``, a value of ``time.monotonic()``, to add a row with
        the last values and drop later samples, and ``peak``, the peak of device memory in bytes.
        """
        new = {name: self._read(name) for name in self._series}
        if ended is not None:
            self._cut(ended, new)
        epochs = Change()
        for row in new["epochs"]:
            number, step, length = row[1:]
            epochs += self.epochs.add(row[0] - self.began, step, number, length)
        if ended is not None and self._progress is not None and self._progress.epoch_over:
            # Append a sentinel epoch start at the end of the run, although no further epoch begins.
            number, step = self._progress.epoch + 2.0, self._latest.get("step", math.nan)
            epochs += self.epochs.add(ended - self.began, step, number, math.nan)
            epochs += self.epochs.end()
        curves = self._new_curves(last=ended is not None)
        return News(self._new_lines(new, ended, peak), curves, epochs, self._new_marks())

    def _cut(self, ended: float, new: dict[str, deque[Values]]) -> None:
        """Drop samples from after the run; the sampler may keep running for other panels."""
        for rows in new.values():
            while rows and rows[-1][0] > ended:
                rows.pop()
        last = self.lines.last()
        self.lines.cut(ended - self.began)
        if last is not None and last is not self.lines.last():
            self._latest = dict(zip(COLUMNS[1:], (self.lines.last() or last)[1:], strict=True))
        self.marks = [mark for mark in self.marks if mark.time <= ended - self.began]

    def _new_lines(
        self, new: dict[str, deque[Values]], ended: float | None, peak: float | None
    ) -> Change:
        """Add a row for each memory sample, or for each speed sample if there are none."""
        change = Change()
        # A pace measurement may arrive late, after a row for its timestamp already exists.
        paces = [(moment,) for moment, *_ in new["speed"] if not moment <= self._newest]
        samples = new.get(MEMORY) or paces
        longest = max(_GAP_INTERVALS / self._sampler.rate, _SHORTEST_GAP)
        for place, (moment, *memory) in enumerate(samples, 1):
            if self._memory and moment - self._newest > longest:
                gap = (math.nan,) * (len(COLUMNS) - 1)
                change += self.lines.add((self._newest + moment) / 2 - self.began, *gap)
            self._advance(new["speed"], moment)
            if memory:
                self._note_memory(*memory, newest=place == len(samples))
            self._add_row(change, moment)
        self._advance(new["speed"], math.inf)
        if peak is not None:
            self.peak = self._latest["peak"] = peak
        if ended is not None:
            self._add_row(change, ended)
        return change

    def _new_curves(self, *, last: bool) -> dict[Curve, Change]:
        changes = {}
        for curve in [curve for curve in self.metrics if curve.last is not None]:
            trace = self.curves.setdefault(curve, Trace(CURVE_COLUMNS, goal=curve.goal))
            self._cursors.setdefault(curve.series, 0)
            change = Change()
            for moment, value, step, epoch in self._read(curve.series):
                change += trace.add(moment - self.began, step, epoch, value)
            if last:
                change += trace.end()
            if change:
                changes[curve] = change
        return changes

    @property
    def not_finite(self) -> list[NotFinite]:
        """The curves that became NaN or infinite."""
        return [] if self._progress is None else self._progress.not_finite

    def step_at(self, time: float) -> float:
        """Return the number of optimizer steps completed before a given time."""
        data = self.lines.data()
        return data["step"][max(0, bisect(data["time"], time) - 1)] if data["step"] else math.nan

    def close(self) -> None:
        """Drop the series of this run from the sampler."""
        for curve in self.metrics.with_copies:
            if not curve.returned:
                self._sampler.forget(curve.series)

    def _new_marks(self) -> list[Mark]:
        marks, self._mark_cursor = self._sampler.marks(self._mark_cursor)
        # Like memory usage, compilations belong to the device, not to the fit.
        new = [Mark(mark.time - self.began, mark.kind, mark.text) for mark in marks if self._memory]
        self.marks.extend(new)
        del self.marks[:-_MARKS_DRAWN]
        return new

    def _read(self, name: str) -> deque[Values]:
        columns, self._cursors[name] = self._sampler.read(name, self._cursors[name])
        return deque(zip(*(map(_drawn, column) for column in columns.values()), strict=True))

    def _advance(self, speeds: deque[Values], moment: float) -> None:
        """Set the pace and step to their last values before a given time."""
        while speeds and speeds[0][0] <= moment:
            _, self._latest["speed"], self._latest["step"] = speeds.popleft()

    def _note_memory(self, in_use: float, peak: float, limit: float, *, newest: bool) -> None:
        """Record a sample; the device's own peak may decrease because any code may reset it."""
        self.limit = limit
        self.peak = peak if math.isnan(self.peak) else max(self.peak, peak)
        if self._peak is not None:
            # Only the tracked peak includes memory allocated and freed between two samples.
            peak = self.peak = max(self.peak, in_use, self._peak.so_far() if newest else 0.0)
        self._latest.update(in_use=in_use, peak=peak)

    def _add_row(self, change: Change, moment: float) -> None:
        row = [self._latest.get(name, math.nan) for name in COLUMNS[1:]]
        self._newest = moment
        if self._progress is not None and self._progress.long_validation:
            row[COLUMNS.index("speed") - 1] = math.nan
        change += self.lines.add(moment - self.began, *row)


def _drawn(value: float) -> float:
    """Return the value to draw; if it is not finite, return NaN, which is drawn as a gap."""
    return value if math.isfinite(value) else math.nan
