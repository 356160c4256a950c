"""The callback behind the live panel: what a fit tells while it trains.

Lightning counts the steps, and passes over hooks that cannot be called. So the
hook at a batch's end is there only when a report is due: a batch without one costs
the look-up of an attribute, where even a short Python function costs tens of
microseconds whose code and data the step has driven out of the caches. Beside batches
that take longer than thirty milliseconds that is nothing: there every batch is heard. The loss
that is reported is that of the batches before: its value is there already, so the
read does not make the host wait for the device.
"""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hpu_magic.runtime.measure.progress import FitProgress
from hpu_magic.runtime.measure.sampler import Sampler, Subscription

__all__ = ["FitMonitorBase", "validation_loss"]

_VALIDATION_LOSS = re.compile(r"^(val|valid|validation)[_/ ]?.*loss", re.IGNORECASE)
_EPOCHS_MARKED = 10
_SLOW = 30.0  # batches a second up to which each of them is heard
_MOST_KEPT = 256  # losses that wait to be read
MOST_CURVES = 6
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


def _logged_with_bar(results: Any) -> dict[str, Any]:
    """Return what a step logged for the progress bar, by name; the tensors are the step's own."""
    return {
        metric.meta.name: metric._forward_cache
        for metric in results.values()
        if metric.meta.prog_bar and metric.meta.on_step and metric._forward_cache is not None
    }


def _numbers(tensors: Sequence[Any], factors: Sequence[int]) -> list[float]:
    """Return tensors of one element as numbers, times their factors, in one read if possible.

    The product is of the tensor's own type, so that what was divided rounds back to what it was.
    """
    if len({(one.dtype, one.device, one.shape) for one in tensors}) == 1 and len(tensors) > 1:
        torch = sys.modules["torch"]
        tensors = torch.stack(list(tensors)).cpu().flatten().unbind()
    return [
        float(one if factor == 1 else one.cpu() * factor)
        for one, factor in zip(tensors, factors, strict=True)
    ]


@dataclass
class _Heard:
    """One batch: what it returned or logged, and which one it was."""

    number: int
    moment: float
    step: int
    place: str
    values: dict[str, Any]
    divided_by: int = 1


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
        Receives the series ``train`` (loss), ``validation`` (loss), ``speed`` (steps per
        second), ``logged NAME`` (value) where no loss is returned, and marks for epochs.
    progress
        Kept up to date for the panel.
    stop
        When set, the fit ends after the current batch.
    interval
        Seconds between two reads of the losses.
    polls
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
        polls: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__()
        self.progress = progress
        self._sampler = sampler
        self._stop = stop
        self._interval = interval
        self._polls = tuple(polls)
        self._due = 0.0
        self._poll_due = 0.0
        self._awake = True
        self._alarm: Subscription | None = None
        self._batches: Any = None  # Lightning's own count, from the start of training
        self._counted = 0  # batches, and when
        self._counted_at = 0.0
        self._unreported_batches = 0
        self._unreported_seconds = 0.0
        self._ready_before_epoch = 0
        self._trainer: Any = None
        self._steps_before = 0
        self._heard: list[_Heard] = []
        self._returns_loss = False
        self._last_logged: dict[str, Any] = {}
        self._validations = 0
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
        if progress.epochs and progress.batches:
            progress.planned_batches = (progress.epochs - trainer.current_epoch) * progress.batches
        self._trainer, self._steps_before = trainer, trainer.global_step
        if (most := _bounded(trainer.max_steps)) is not None:
            progress.planned_steps = most - self._steps_before
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
        """What to do at the end of a batch; None while no report is due."""
        return self._batch_ended if self._awake else None

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
        if self._polls and time.monotonic() >= self._poll_due:
            self._poll_due = time.monotonic() + self._interval
            self._answer()
        if self._stop.is_set() and not trainer.sanity_checking:
            self._end_early(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the validation loss that the model logged."""
        self.progress.validation_batch = self.progress.validation_began = None
        if trainer.sanity_checking:
            return
        loss = validation_loss(trainer.callback_metrics)
        if loss is not None:
            self._note_validation(float(loss))
        self._resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the last batches."""
        self._report(time.monotonic())
        self.release(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Name the batch that failed, and let go of the last step's tensors."""
        if self.progress.phase == "training":
            self._trainer = trainer
            self._pause()
            in_epoch = self._batches.total.ready > self._ready_before_epoch
            self.progress.batch = (self._batches.current.completed if in_epoch else 0) + 1
        with suppress(RuntimeError):  # the device may be what failed
            self._read_losses()
        self.release(trainer)

    # The work

    def release(self, trainer: Any) -> None:
        """Drop references to the device's tensors and give the Trainer its limits back."""
        self._heard.clear()
        self._last_logged.clear()
        self._trainer = None
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
        """Let the next batch's end be heard; called from the sampler's thread."""
        if self._stop.is_set() or time.monotonic() >= self._due:
            self._awake = True

    def _batch_ended(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the batch's loss, and report those before it once a report is due."""
        number, now = self._batches.total.processed, time.monotonic()
        if self._heard and self._heard[-1].number == number - 1:
            if now >= self._due:
                self._report(now)
                self._awake = self._stop.is_set() or self._slow()
                self._answer()
            elif len(self._heard) >= _MOST_KEPT:
                self._read_losses(shown=False)
                self._pause()
                self._awake = self._stop.is_set() or self._slow()
        self._hear(trainer, pl_module, outputs, number, now)
        if self._stop.is_set():
            self._end_early(trainer)

    def _answer(self) -> None:
        for poll in self._polls:
            poll()

    def _slow(self) -> bool:
        """Tell whether batches take so long that hearing each of them is nothing beside it."""
        pace = self.progress.batches_per_second
        return pace is not None and pace <= _SLOW

    def _hear(self, trainer: Any, pl_module: Any, outputs: Any, number: int, now: float) -> None:
        loss, step, divided_by = _loss_of(outputs), trainer.global_step, 1
        values: dict[str, Any] = {}
        if pl_module.automatic_optimization:
            # Lightning divides by it before the backward pass, and shows what it has divided.
            divided_by = trainer.accumulate_grad_batches
            stepped = self._batches.current.ready % divided_by == 0 or trainer.is_last_batch
            step += 0 if stepped else 1
        if loss is not None:
            self._returns_loss, values = True, {"": loss}
        elif not self._returns_loss:
            divided_by, values = 1, self._logged_anew(trainer)
        place = f"epoch {trainer.current_epoch + 1}, batch {self._batches.current.processed}"
        self._heard.append(_Heard(number, now, step, place, values, divided_by))

    def _logged_anew(self, trainer: Any) -> dict[str, Any]:
        """Return what this batch logged for the progress bar."""
        logged = _logged_with_bar(trainer.fit_loop.epoch_loop._results)
        last, self._last_logged = self._last_logged, logged
        curves = self.progress.curves
        curves += [name for name in logged if name not in curves][: MOST_CURVES - len(curves)]
        return {
            name: value
            for name, value in logged.items()
            if value is not last.get(name) and name in curves
        }

    def _read_losses(self, *, shown: bool = True) -> None:
        """Look at all values that were kept, and show the newest of each curve."""
        heard, self._heard = self._heard, []
        values = [(one, name, value) for one in heard for name, value in one.values.items()]
        newest: dict[str, tuple[float, float]] = {}
        numbers = _numbers([value for *_, value in values], [one.divided_by for one, *_ in values])
        for (one, name, _), number in zip(values, numbers, strict=True):
            newest[name] = (one.moment, number)
            self.progress.watch.see(
                name or "loss",
                number,
                index=one.number,
                step=one.step,
                place=one.place,
                moment=one.moment,
            )
        for name, (moment, number) in newest.items() if shown else ():
            if name:
                self._sampler.record(f"logged {name}", moment=moment, value=number)
            else:
                self._sampler.record("train", moment=moment, loss=number)

    def _note_validation(self, loss: float) -> None:
        now, trainer = time.monotonic(), self._trainer
        self._validations += 1
        self._sampler.record("validation", moment=now, loss=loss)
        self.progress.watch.see(
            "validation loss",
            loss,
            index=self._validations,
            step=trainer.global_step,
            place=f"after epoch {trainer.current_epoch + 1}, batch {self.progress.batch}",
            moment=now,
        )

    def _resume(self) -> None:
        self.progress.phase = "training"
        self._counted, self._counted_at = self._batches.total.processed, time.monotonic()

    def _pause(self) -> None:
        """Count up to here, so that a break does not count as slow batches."""
        now, progress = time.monotonic(), self.progress
        progress.batch = self._batches.current.processed
        batches, seconds = self._batches.total.processed - self._counted, now - self._counted_at
        self._counted, self._counted_at = self._counted + batches, now
        self._unreported_batches += batches
        self._unreported_seconds += seconds
        progress.trained += batches
        progress.steps = self._trainer.global_step - self._steps_before
        progress.training_seconds += seconds

    def _report(self, now: float) -> None:
        self._due = max(self._due, now - self._interval) + self._interval
        self._pause()
        batches, seconds = self._unreported_batches, self._unreported_seconds
        if batches and seconds > 0 and self.progress.steps:
            # In a short while steps are few where gradients are accumulated, batches are not.
            steps = batches * self.progress.steps / self.progress.trained
            self._sampler.record("speed", moment=now, steps_per_second=steps / seconds)
            self._unreported_batches, self._unreported_seconds = 0, 0.0
        self._read_losses()

    def _end_early(self, trainer: Any) -> None:
        """Ask Lightning to stop; a person's wish comes before ``min_epochs`` and ``min_steps``."""
        if self._limits is None:
            loop = trainer.fit_loop
            self._limits = (loop.min_epochs, loop.epoch_loop.min_steps)
            loop.min_epochs, loop.epoch_loop.min_steps = 0, None
            self.progress.stopping = True
        trainer.should_stop = True
