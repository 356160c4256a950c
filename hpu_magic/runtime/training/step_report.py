"""Report the steps, pace, epochs and logged values of a training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hpu_magic.runtime.measure.card_time import CardPace
from hpu_magic.runtime.training.curves import Curve
from hpu_magic.runtime.training.logged_values import FIRST_STEPS, LoggedValues, PendingValues
from hpu_magic.runtime.training.observation import SETTLED
from hpu_magic.runtime.training.pace import PaceSeries
from hpu_magic.runtime.training.source import FitReport

_SLOW = 30.0  # steps per second; if a fit is slower, the values of all steps are kept


class StepReport:
    """Counts batches and steps, and reads values when a report is due.

    All values of the first steps and of slow steps are kept. If steps are fast, only the values of
    the step before each report are kept. Values are read after the next step, so that the host does
    not wait for the device.
    """

    def __init__(self, report: FitReport) -> None:
        self._to = report
        self.progress = report.progress
        self._observer = report.progress.observer
        self.batches = 0
        self.steps = 0
        self._steps_before = 0
        self._pending = PendingValues(report.sampler, report.progress.curves, report.progress.watch)
        self._kept_at = -2  # the step whose values were kept last
        self._due = 0.0
        self._answer_due = 0.0
        self._counted_at = 0.0
        self._pace = PaceSeries(report.sampler, report.interval)
        self._card = CardPace()

    @property
    def stopped(self) -> bool:
        """Whether the Stop button was pressed."""
        return self._to.stopped.is_set()

    def begin(self, steps_before: int = 0) -> float:
        """Start counting, or start over when training restarts, and return the current time.

        ``steps_before`` is the number of steps in an earlier fit that this one continues.
        """
        self._observer.began()
        progress, now = self.progress, time.monotonic()
        progress.training_began = self._counted_at = now
        progress.steps = progress.trained = progress.epochs_done = progress.batches_over = 0
        progress.training_seconds = 0.0
        progress.card_step = None
        self._card = CardPace()
        progress.phase = "training"
        self.batches = self.steps = 0
        self._steps_before = steps_before
        self._due = now + self._to.interval
        return now

    @property
    def step(self) -> int:
        """The number of optimizer steps, including those before this fit."""
        return self._steps_before + self.steps

    def epoch_began(self, epoch: int, length: float) -> None:
        """Record the start of an epoch; ``length`` is in steps, or NaN if unknown."""
        self._observer.epoch_began()
        self.progress.epoch = epoch
        self.progress.epoch_over = False
        self.progress.batch = 0
        number, step = float(epoch + 1), float(self.step)
        self._to.sampler.record("epochs", number=number, step=step, length=length)

    def epoch_ended(self, *, whole: bool) -> None:
        """Count the epoch if it was completed."""
        self.progress.epoch_over = whole
        if whole:
            self.progress.epochs_done += 1
        else:
            self.progress.batches_over += self.progress.batch

    def batch_ended(self) -> None:
        """Count a batch."""
        self.batches += 1
        self.progress.batch += 1

    def step_ended(self) -> bool:
        """Count an optimizer step, and report on earlier steps if a report is due.

        Returns whether the values of this step should be passed to `keep`.
        """
        self.steps += 1
        if self.steps == SETTLED:
            self._observer.settled()
        now = time.monotonic()
        if now >= self._due and self._kept_at == self.steps - 1:
            self._report(now)
        elif self._pending.full:
            self._pending.read()
        pace = self.progress.steps_per_second
        first = self.steps <= FIRST_STEPS
        return first or now >= self._due or (pace is not None and pace <= _SLOW)

    @property
    def kept(self) -> bool:
        """Whether the values of the last step were kept."""
        return self._kept_at == self.steps

    def keep(self, values: Mapping[Curve, Any], ahead: int = 0) -> None:
        """Keep the values of the last step, or of a step that is not yet counted (``ahead``)."""
        self._kept_at = self.steps
        self.add(values, self.steps + ahead, ahead)

    def add(self, values: Mapping[Curve, Any], number: int, ahead: int = 0) -> None:
        """Keep the current values; ``number`` is their index among values of the same kind."""
        progress = self.progress
        place = f"epoch {progress.epoch + 1}, batch {progress.batch}"
        if progress.phase == "validating":
            place = f"after {place}"
        now = time.monotonic()
        self._pending.add(
            LoggedValues(number, now, self.step + ahead, progress.epoch, place, values)
        )

    def validate(self, batch: int) -> None:
        """Record a validation batch, whose time does not count as training time."""
        progress = self.progress
        if progress.phase != "validating":
            self.count_to(self.batches, self.steps)
            progress.phase = "validating"
            progress.validation_began = time.monotonic()
        progress.validation_batch = batch or None
        self.answer()

    def train(self) -> None:
        """Record that training continues after a validation."""
        progress = self.progress
        if progress.phase == "validating":
            progress.validation_batch = progress.validation_began = None
            self.resume()

    def resume(self) -> None:
        """Resume measuring the training time."""
        self.progress.phase = "training"
        self._counted_at = time.monotonic()
        self._card.begin()

    def count_to(self, batches: int, steps: int) -> None:
        """Set the numbers of batches and steps, and add the time since the last count."""
        progress, now = self.progress, time.monotonic()
        self._pace.add(batches - progress.trained, now - self._counted_at)
        progress.training_seconds += now - self._counted_at
        self._counted_at = now
        self._card.add(steps - progress.steps)
        progress.card_step = self._card.step
        progress.trained = self.batches = batches
        progress.steps = self.steps = steps

    def report_pace(self, *, last: bool = False) -> None:
        """Record the pace up to the last count."""
        # If gradients are accumulated, a short period contains few steps but enough batches.
        share = self.progress.steps / max(1, self.progress.trained)
        self._pace.report(self._counted_at, self.step, steps_per_batch=share, last=last)

    def answer(self) -> None:
        """Handle clicks in the panel if enough time has passed."""
        now = time.monotonic()
        if now >= self._answer_due:
            self._answer_due = now + self._to.interval
            for poll in self._to.polls:
                poll()

    def close(self) -> None:
        """Report the last steps, and release the tensors on the device."""
        if self.progress.phase == "training":
            self.count_to(self.batches, self.steps)
        self.report_pace(last=True)
        self._observer.ended()
        with suppress(RuntimeError):  # the device may have failed
            self._pending.read()
        self._pending.clear()

    def _report(self, now: float) -> None:
        self._due = max(self._due, now - self._to.interval) + self._to.interval
        self.count_to(self.batches, self.steps)
        self.report_pace()
        self._pending.read()
        self.answer()


def known_length(loader: Any) -> int | None:
    """Return the number of batches in a loader, or None if unknown."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def in_steps(batches: int | None, accumulated: int) -> float:
    """Return the number of optimizer steps in an epoch, or NaN if unknown."""
    return math.nan if batches is None else float(math.ceil(batches / accumulated))
