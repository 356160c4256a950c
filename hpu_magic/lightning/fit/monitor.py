"""The live panel's callback for Lightning's ``Trainer``.

Lightning counts the steps and skips hooks that are None. Therefore, the hook at the end of a batch
exists only while a report is due. Without the hook, a batch costs only an attribute lookup. Even a
short Python function would take tens of microseconds, because the step has evicted it from the
CPU's caches. If batches take longer than about 30 ms, this cost is negligible, and the hook is
called for each batch. A report contains the losses of earlier batches, which have already been
computed, so the host does not wait for the device.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from hpu_magic.lightning.fit.early_end import early_end
from hpu_magic.lightning.fit.logged import Logged, goals_of, loss_of
from hpu_magic.lightning.fit.loops import timed_fetches
from hpu_magic.runtime.training.curves import Curve
from hpu_magic.runtime.training.logged_values import (
    FIRST_STEPS,
    LoggedValues,
    PendingValues,
    copied,
)
from hpu_magic.runtime.training.observation import SETTLED
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler, Subscription
from hpu_magic.runtime.training.source import FitReport
from hpu_magic.runtime.training.step_report import StepReport

_SLOW = 30.0  # batches per second; at or below this rate, the hook is called for each batch


def _bounded(number: float | None) -> int | None:
    """Return a finite, non-negative count, or None for Lightning's "no limit" values."""
    if number is None or not math.isfinite(number) or number < 0:
        return None
    return int(number)


def _seconds_allowed(callbacks: Sequence[Any]) -> float | None:
    """Return the seconds until a Timer callback ends the fit; ``max_time`` adds such a callback."""
    timers = [each for each in callbacks if callable(getattr(each, "time_remaining", None))]
    allowed = [left for timer in timers if (left := timer.time_remaining()) is not None]
    return min(allowed, default=None)


class LightningMonitorBase:
    """Reports one fit to a sampler, and ends the fit after the current batch if `stop` is set.

    The sampler receives a series for each curve in `progress`, a series ``speed`` with the steps
    per second and the step, and a series ``epochs`` with the epoch number, its first step and its
    expected length in steps. Every `interval` seconds, the training thread reads logged values and
    calls `polls`.
    """

    # The hook that is called at the end of a batch; None while no report is due.
    on_train_batch_end: Callable[..., None] | None = None
    on_train_batch_start = None
    on_before_zero_grad = None
    on_before_backward = None
    on_after_backward = None
    on_before_optimizer_step = None

    def __init__(
        self,
        sampler: Sampler,
        progress: FitProgress,
        stop: threading.Event,
        interval: float = 0.1,
        polls: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__()
        self.progress = progress
        self._observer = progress.observer
        self._fetches = ExitStack()
        self._sampler = sampler
        self._stop = stop
        self._interval = interval
        self._polls = tuple(polls)
        self._due = 0.0
        self._validation_due = 0.0
        self._alarm: Subscription | None = None
        self._batches: Any = None  # Lightning's batch progress, which is set when training starts
        self._batches_before = 0
        self._steps = StepReport(FitReport(sampler, progress, stop, interval, polls))
        self._ready_before_epoch = 0
        self._trainer: Any = None
        self._steps_before = 0
        self._logged = Logged(progress.curves)
        self._pending = PendingValues(sampler, progress.curves, progress.watch)
        self._kept_at = -2  # number of the last batch whose values were kept
        self._validations = 0
        self._epoch_began_at: int | None = None  # the optimizer step
        self._limits: tuple[Any, Any] | None = None

    def stop(self) -> None:
        """End the fit after the current batch; can be called from any thread."""
        self._stop.set()
        self._enable_hook()

    # Lightning's hooks

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the planned length of the fit."""
        progress = self.progress
        self._batches = trainer.fit_loop.epoch_loop.batch_progress
        self._alarm = self._sampler.subscribe(self._wake, rate=1 / self._interval)
        progress.epochs = _bounded(trainer.max_epochs)
        progress.batches = _bounded(trainer.num_training_batches)
        if progress.epochs and progress.batches:
            progress.planned_batches = (progress.epochs - trainer.current_epoch) * progress.batches
        began = self._steps.begin(trainer.global_step)
        self._batches_before = self._batches.total.processed
        self._fetches = timed_fetches(trainer, self._observer.waiting)
        self._trainer, self._steps_before = trainer, trainer.global_step
        if (most := _bounded(trainer.max_steps)) is not None:
            progress.planned_steps = most - self._steps_before
        if (allowed := _seconds_allowed(trainer.callbacks)) is not None:
            progress.deadline = began + allowed
        progress.curves.goals.update(goals_of(trainer.callbacks))
        self._due = began + self._interval
        self._enable_hook()
        self._steps.resume()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the start of an epoch, and keep the values of the previous one."""
        self._keep_epoch(trainer)
        self._observer.epoch_began()
        progress, step = self.progress, trainer.global_step
        progress.epoch, progress.epoch_over = trainer.current_epoch, False
        self._ready_before_epoch = self._batches.total.ready
        progress.batches = _bounded(trainer.num_training_batches)
        length = math.nan if self._epoch_began_at is None else float(step - self._epoch_began_at)
        if progress.batches and pl_module.automatic_optimization:
            length = float(math.ceil(progress.batches / trainer.accumulate_grad_batches))
        self._epoch_began_at = step
        self._sampler.record(
            "epochs", number=float(progress.epoch + 1), step=float(step), length=length
        )

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Count the epoch if all of its batches have been processed."""
        self.progress.batch = self._batches.current.processed
        self.progress.epoch_over = self._batches.is_last_batch
        if self.progress.epoch_over:
            self.progress.epochs_done += 1
        else:
            self.progress.batches_over = self.progress.batch

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Record that validation begins; its duration does not count as training time."""
        if trainer.sanity_checking:
            return
        self._pause()
        self.progress.phase = "validating"
        self.progress.validation_began = time.monotonic()

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Record the number of the validation batch, which is reported if the fit fails."""
        self.progress.validation_batch = batch_idx + 1

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Handle clicks during validation, and report the values that its batches log."""
        if (now := time.monotonic()) >= self._validation_due:
            self._validation_due = now + self._interval
            self._answer()
            if not trainer.sanity_checking:
                results = trainer.fit_loop.epoch_loop.val_loop._results
                values = self._logged.of_step(results, "validation")
                place = f"epoch {self.progress.epoch + 1}, validation batch {batch_idx + 1}"
                self._pending.add(self._after(self._batches.total.processed, place, values))
                self._pending.read()
        if self._stop.is_set() and not trainer.sanity_checking:
            self._end_early(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keep the values that were logged during validation."""
        self.progress.validation_batch = self.progress.validation_began = None
        if trainer.sanity_checking:
            return
        results, values = trainer.fit_loop.epoch_loop.val_loop._results, trainer.callback_metrics
        logged = self._logged.of_epoch(results, values, "validation")
        self._validations += 1
        place = f"after epoch {trainer.current_epoch + 1}, batch {self.progress.batch}"
        self._pending.add(self._after(self._validations, place, logged))
        if self._pending.full or time.monotonic() >= self._due:
            self._pending.read()
        self._steps.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the last batches, the values of the last epoch, and why the fit ended early."""
        self._keep_epoch(trainer)
        if not self._stop.is_set():
            self.progress.ended_by = early_end(trainer)
        self._report(time.monotonic(), last=True)
        self.release(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Record which batch failed, and release the tensors of the last step."""
        if self.progress.phase == "training":
            self._trainer = trainer
            self._pause()
            self._steps.report_pace(last=True)
            in_epoch = self._batches.total.ready > self._ready_before_epoch
            self.progress.batch = (self._batches.current.completed if in_epoch else 0) + 1
        with suppress(RuntimeError):  # the device may have failed
            self._pending.read()
        self.release(trainer)

    # The work

    def release(self, trainer: Any) -> None:
        """Release references to device tensors, and restore the Trainer's limits."""
        self._observer.ended()
        self._fetches.close()
        self._pending.clear()
        self._logged.forget()
        self._trainer = None
        if self._alarm is not None:
            self._alarm.close()
        self._enable_hook(False)
        # After an interrupt, the result collections would still reference the batch.
        loop = trainer.fit_loop.epoch_loop
        for results in (loop._results, loop.val_loop._results):
            results.batch = None
        if self._limits is not None:
            trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = self._limits
            self._limits = None

    def _wake(self, _: Sampler) -> None:
        """Enable the batch-end hook if a report is due; called from the sampler's thread."""
        if self._stop.is_set() or time.monotonic() >= self._due:
            self._enable_hook()

    def _enable_hook(self, enabled: bool = True) -> None:
        self.on_train_batch_end = self._batch_ended if enabled else None

    def _batch_ended(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the values of this batch, and report those of earlier batches if a report is due."""
        number, now = self._batches.total.processed, time.monotonic()
        if number >= SETTLED * trainer.accumulate_grad_batches:
            self._observer.settled()
        if self._kept_at == number - 1:
            if now >= self._due:
                self._report(now)
                self._answer()
            elif self._pending.full:
                self._pending.read()
                self._pause()
            self._enable_hook(self._stop.is_set() or self._keeps_each(number))
        # If the hook has been disabled, the logged values will be stale at the next report, so only
        # the loss is kept. Always keep the loss, because some training steps may not return one.
        logged = self.on_train_batch_end is not None
        self._keep(trainer, pl_module, outputs, number, logged=logged)
        if self._stop.is_set():
            self._end_early(trainer)

    def _answer(self) -> None:
        for poll in self._polls:
            poll()

    def _keeps_each(self, number: int) -> bool:
        """Return whether to keep the values of every batch, because the fit is new or slow."""
        pace = self.progress.batches_per_second
        return number <= FIRST_STEPS or (pace is not None and pace <= _SLOW)

    def _keep(
        self, trainer: Any, pl_module: Any, outputs: Any, number: int, *, logged: bool
    ) -> None:
        self._kept_at = number
        values: dict[Curve, Any] = {}
        step, divided_by = trainer.global_step, 1
        if pl_module.automatic_optimization:
            # If gradients are accumulated, Lightning divides the loss by the number of batches
            # before the backward pass, and displays the divided loss.
            divided_by = trainer.accumulate_grad_batches
            stepped = self._batches.current.ready % divided_by == 0 or trainer.is_last_batch
            step += 0 if stepped else 1
        loss = loss_of(outputs)
        if loss is not None and self._logged.loss is not None:
            values[self._logged.loss] = loss
        if logged:
            values |= self._logged.of_step(trainer.fit_loop.epoch_loop._results, "training")
        place = f"epoch {trainer.current_epoch + 1}, batch {self._batches.current.processed}"
        step_values = self._after(number, place, values)
        step_values.step, step_values.divided_by = step, divided_by
        self._pending.add(step_values)

    def _keep_epoch(self, trainer: Any) -> None:
        """Keep the values of the previous epoch, including those that its last hooks logged."""
        results, values = trainer.fit_loop.epoch_loop._results, trainer.callback_metrics
        logged = self._logged.of_epoch(results, values, "training")
        epoch = self.progress.epoch + 1
        self._pending.add(self._after(epoch, f"after epoch {epoch}", logged))

    def _after(self, number: int, place: str, values: Mapping[Curve, Any]) -> LoggedValues:
        """Copy the current values, because the fit may modify its tensors."""
        trainer, now = self._trainer, time.monotonic()
        values = {curve: copied(value) for curve, value in values.items()}
        return LoggedValues(number, now, trainer.global_step, self.progress.epoch, place, values)

    def _pause(self) -> None:
        """Count the batches and steps so far, so that the pause does not count as training time."""
        self.progress.batch = self._batches.current.processed
        batches = self._batches.total.processed - self._batches_before
        self._steps.count_to(batches, self._trainer.global_step - self._steps_before)

    def _report(self, now: float, *, last: bool = False) -> None:
        self._due = max(self._due, now - self._interval) + self._interval
        self._pause()
        self._steps.report_pace(last=last)
        self._pending.read()

    def _end_early(self, trainer: Any) -> None:
        """Make Lightning stop the fit, even before ``min_epochs`` or ``min_steps`` is reached."""
        if self._limits is None:
            loop = trainer.fit_loop
            self._limits = (loop.min_epochs, loop.epoch_loop.min_steps)
            loop.min_epochs, loop.epoch_loop.min_steps = 0, None
            self.progress.stopping = True
        trainer.should_stop = True
