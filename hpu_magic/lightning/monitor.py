"""The callback behind the live panel: what a fit tells while it trains.

Lightning counts the steps, and passes over hooks that cannot be called. So the
hook at a step's end is there only when a report is due: a step without one costs
the look-up of an attribute, where even a short Python function costs tens of
microseconds whose code and data the step has driven out of the caches. The loss
that is reported is that of the step before: its value is there already, so the
read does not make the host wait for the device.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from hpu_magic.runtime.measure.progress import FitProgress
from hpu_magic.runtime.measure.sampler import Sampler, Subscription

__all__ = ["FitMonitorBase", "validation_loss"]

_VALIDATION_LOSS = re.compile(r"^(val|valid|validation)[_/ ]?.*loss", re.IGNORECASE)
_EPOCHS_MARKED = 10
_PLAIN_NAMES = ("val_loss", "val/loss", "valid_loss", "validation_loss")


def validation_loss(metrics: Mapping[str, Any]) -> Any | None:
    """Return the validation loss among logged metrics, by its usual names, or None."""
    for name in _PLAIN_NAMES:
        if name in metrics:
            return metrics[name]
    for name, value in metrics.items():
        if _VALIDATION_LOSS.match(name):
            return value
    return None


def _loss_of(outputs: Any) -> Any | None:
    """Return the loss in what a training step returned, free of its graph, or None."""
    loss: Any = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss.detach() if getattr(loss, "requires_grad", False) else loss


def _bounded(number: float | None) -> int | None:
    """Return a positive finite count, or None for Lightning's "no limit" values."""
    if number is None or not math.isfinite(number) or number < 0:
        return None
    return int(number)


class FitMonitorBase:
    """Report one fit to a sampler, and end it when asked to.

    Parameters
    ----------
    sampler
        Receives the series ``train`` (loss), ``validation`` (loss), ``speed``
        (steps per second) and marks for epochs.
    progress
        Kept up to date for the panel.
    stop
        When set, the fit ends after the current batch.
    interval
        Seconds between two reads of the loss.
    poll
        Called at each read from the training thread.
    """

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
        poll: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.progress = progress
        self._sampler = sampler
        self._stop = stop
        self._interval = interval
        self._poll = poll
        self._due = 0.0
        self._poll_due = 0.0
        self._awake = True
        self._alarm: Subscription | None = None
        self._batches: Any = None  # Lightning's own count, from the start of training
        self._counted = 0  # steps, and when
        self._counted_at = 0.0
        self._unreported_steps = 0
        self._unreported_seconds = 0.0
        self._ready_before_epoch = 0
        self._previous: Any = None
        self._previous_step = 0
        self._limits: tuple[Any, Any] | None = None

    def stop(self) -> None:
        """End the fit after the current batch; to be called from any thread."""
        self._stop.set()
        self._awake = True

    # Lightning's hooks

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Note what is planned."""
        progress = self.progress
        self._batches = trainer.fit_loop.epoch_loop.batch_progress
        self._alarm = self._sampler.subscribe(self._wake, rate=1 / self._interval)
        progress.training_began = time.monotonic()
        progress.epochs = _bounded(trainer.max_epochs)
        progress.batches = _bounded(trainer.num_training_batches)
        plans = []
        if progress.epochs and progress.batches:
            plans.append(progress.epochs * progress.batches)
        optimizer_steps = _bounded(trainer.max_steps)
        if optimizer_steps is not None:
            plans.append(optimizer_steps * trainer.accumulate_grad_batches)
        progress.planned_steps = min(plans, default=None)
        self._due = progress.training_began + self._interval
        self._resume()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Mark the epoch on the time axis, or about ten of them when there are many."""
        epoch = self.progress.epoch = trainer.current_epoch
        self._ready_before_epoch = self._batches.total.ready
        self.progress.batches = _bounded(trainer.num_training_batches)
        if epoch % max(1, (self.progress.epochs or 0) // _EPOCHS_MARKED) == 0:
            self._sampler.mark("epoch", f"epoch {epoch + 1}")

    @property
    def on_train_batch_end(self) -> Callable[..., None] | None:
        """What to do at the end of a step; None while no report is due."""
        return self._step_ended if self._awake else None

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Leave validation out of the training pace."""
        if trainer.sanity_checking:
            return
        self._pause()
        self.progress.phase = "validating"
        self.progress.validation_began = time.monotonic()

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Note the batch, so that a failure can be told by it."""
        self.progress.validation_batch = batch_idx + 1

    def on_validation_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Keep answering while Lightning validates."""
        if self._poll is not None and time.monotonic() >= self._poll_due:
            self._poll_due = time.monotonic() + self._interval
            self._poll()
        if self._stop.is_set() and not trainer.sanity_checking:
            self._end_early(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the validation loss that the model logged."""
        self.progress.validation_batch = self.progress.validation_began = None
        if trainer.sanity_checking:
            return
        loss = validation_loss(trainer.callback_metrics)
        if loss is not None:
            self._sampler.record("validation", loss=float(loss))
        self._resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the last step."""
        self._report(time.monotonic())
        self.release(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Name the batch that failed, and let go of the last step's tensors."""
        if self.progress.phase == "training":
            self._pause()
            in_epoch = self._batches.total.ready > self._ready_before_epoch
            self.progress.batch = (self._batches.current.completed if in_epoch else 0) + 1
        self.release(trainer)

    # The work

    def release(self, trainer: Any) -> None:
        """Drop references to the device's tensors and give the Trainer its limits back."""
        self._previous = None
        if self._alarm is not None:
            self._alarm.close()
        # A fit that was broken off leaves its batch in the collections of logged values.
        loop = trainer.fit_loop.epoch_loop
        for results in (loop._results, loop.val_loop._results):
            results.batch = None
        if self._limits is not None:
            trainer.fit_loop.min_epochs, trainer.fit_loop.epoch_loop.min_steps = self._limits
            self._limits = None

    def _wake(self, _: Sampler) -> None:
        """Let the next step's end be heard; called from the sampler's thread."""
        if self._stop.is_set() or time.monotonic() >= self._due:
            self._awake = True

    def _step_ended(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the step's loss, and report that of the step before once a report is due."""
        step = self._batches.total.processed
        now = time.monotonic()
        if now >= self._due and step == self._previous_step + 1:
            self._report(now)
            self._awake = self._stop.is_set()
            if self._poll is not None:
                self._poll()
        self._previous, self._previous_step = _loss_of(outputs), step
        if self._stop.is_set():
            self._end_early(trainer)

    def _resume(self) -> None:
        self.progress.phase = "training"
        self._counted, self._counted_at = self._batches.total.processed, time.monotonic()

    def _pause(self) -> None:
        """Count up to here, so that a break does not count as slow steps."""
        now, progress = time.monotonic(), self.progress
        progress.batch = self._batches.current.processed
        steps, seconds = self._batches.total.processed - self._counted, now - self._counted_at
        self._counted, self._counted_at = self._counted + steps, now
        self._unreported_steps += steps
        self._unreported_seconds += seconds
        progress.steps += steps
        progress.training_seconds += seconds

    def _report(self, now: float) -> None:
        self._due = max(self._due, now - self._interval) + self._interval
        self._pause()
        steps, seconds = self._unreported_steps, self._unreported_seconds
        if steps and seconds > 0:
            self._sampler.record("speed", moment=now, steps_per_second=steps / seconds)
            self._unreported_steps, self._unreported_seconds = 0, 0.0
        if self._previous is not None:
            self._sampler.record("train", moment=now, loss=float(self._previous))

    def _end_early(self, trainer: Any) -> None:
        """Ask Lightning to stop; a person's wish comes before ``min_epochs`` and ``min_steps``."""
        if self._limits is None:
            loop = trainer.fit_loop
            self._limits = (loop.min_epochs, loop.epoch_loop.min_steps)
            loop.min_epochs, loop.epoch_loop.min_steps = 0, None
            self.progress.stopping = True
        trainer.should_stop = True
