"""The live panel's callback for ``transformers.Trainer``.

The Trainer logs losses that are averaged over the logging interval, with NaN losses replaced.
Therefore, the panel uses the results of ``training_step``, which are tensors on the device.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from hpu_magic.huggingface.early_end import early_end
from hpu_magic.huggingface.metric_names import BOOKKEEPING, COUNTERS, ON_REQUEST, SUMMARY
from hpu_magic.runtime.training.curves import LOSS, Curve
from hpu_magic.runtime.training.logged_values import copied, number_of
from hpu_magic.runtime.training.metric_names import metric_of
from hpu_magic.runtime.training.source import FitReport
from hpu_magic.runtime.training.step_report import StepReport, in_steps, known_length


class TransformersMonitorBase:
    """Reports the progress of a fit, and stops the fit if requested."""

    def __init__(self, report: FitReport) -> None:
        self._steps = StepReport(report)
        self._progress = report.progress
        self._losses: list[Any] = []  # losses of the batches in a step
        self._loss: Curve | None = None
        self._curves: dict[tuple[str, str], Curve | None] = {}
        self._logged: dict[str, float] = {}
        self._accumulated = 1
        self._first_epoch: int | None = None
        self._logs = 0
        self._in_hand = False  # whether the last counted batch still has a step or hooks to run
        self._validation_batches: int | None = None
        self._callbacks: list[Any] = []

    @property
    def metrics(self) -> dict[str, float]:
        """The last value logged under each name; bookkeeping values come last."""
        logged = {
            name: value
            for name, value in self._logged.items()
            if name.removeprefix("eval_") not in COUNTERS
        }
        if not logged and self._loss is not None and self._loss.last is not None:
            logged[LOSS] = self._loss.last.value
        return dict(sorted(logged.items(), key=lambda item: item[0].endswith(BOOKKEEPING)))

    @contextmanager
    def collecting_losses(self, trainer: Any) -> Iterator[None]:
        """Inside the block, collect the losses of the Trainer's steps, and time its data loader."""
        waiting = self._progress.observer.waiting
        self._callbacks = trainer.callback_handler.callbacks

        def training_step(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self._in_hand = False
            loss = original(*args, **kwargs)
            # Most losses are never read, so they are not copied until `_keep` is called. The
            # Trainer's own losses are already detached.
            attached = getattr(loss, "requires_grad", False)
            self._losses.append(loss.detach() if attached else loss)
            self._steps.batch_ended()
            self._in_hand = True
            return loss

        def get_batch_samples(
            original: Callable[..., Any], batches: Iterator[Any], *args: Any, **kwargs: Any
        ) -> Any:
            return original(waiting.over(batches), *args, **kwargs)

        with ExitStack() as stack:
            for method in (training_step, get_batch_samples):
                stack.enter_context(_wrapped(trainer, method))
            yield

    # The Trainer's hooks

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the planned epochs and steps of the fit."""
        progress = self._progress
        self._steps.begin(state.global_step)
        self._losses.clear()
        self._in_hand = False
        self._accumulated = args.gradient_accumulation_steps
        self._first_epoch = None
        progress.batches = known_length(kwargs.get("train_dataloader"))
        progress.epochs = state.num_train_epochs if state.num_train_epochs < sys.maxsize else None
        progress.planned_steps = state.max_steps - state.global_step
        if best := args.metric_for_best_model:
            name = best if best.startswith("eval_") else f"eval_{best}"
            progress.curves.goals[name] = "max" if args.greater_is_better else "min"
        if self._loss is None:
            self._loss = progress.curves.follow(LOSS, LOSS, "training", "step", returned=True)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the start of an epoch."""
        self._steps.train()
        progress, resumed = self._progress, 0.0
        if self._first_epoch is None:
            # A resumed fit may continue in the middle of an epoch.
            self._first_epoch = int(state.epoch or 0)
            resumed = (state.epoch or 0) - self._first_epoch
            epoch = self._first_epoch
        else:
            epoch = progress.epoch + 1
        self._steps.epoch_began(epoch, in_steps(progress.batches, self._accumulated))
        if progress.batches and not args.ignore_data_skip:
            progress.batch = round(resumed * progress.batches)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Resume training after an evaluation."""
        self._losses.clear()
        self._steps.train()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Handle button clicks during a step that consists of many batches."""
        self._in_hand = False
        self._steps.answer()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Send a report if one is due, and stop if requested."""
        self._in_hand = _has_more_to_do(control)
        if self._steps.step_ended():
            self._keep()
        if control.should_evaluate:
            self._steps.validate(0)
        self._end_if_asked(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the epoch if it is complete."""
        self._in_hand = _has_more_to_do(control)
        progress = self._progress
        length = progress.batches
        whole = progress.batch == length if length else not control.should_training_stop
        self._steps.epoch_ended(whole=whole)
        if control.should_evaluate:
            self._steps.validate(0)
        self._end_if_asked(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record an evaluation batch, and handle button clicks."""
        self._validation_batches = known_length(kwargs.get("eval_dataloader"))
        self._steps.validate((self._progress.validation_batch or 0) + 1)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the logged values."""
        self._in_hand = self._in_hand and _has_more_to_do(control)
        numbers = {
            str(name): number
            for name, value in (logs or {}).items()
            if (number := number_of(value)) is not None
        }
        self._logged |= numbers
        if SUMMARY in numbers:
            return
        # Before the first batch of an evaluation, the Trainer logs training values.
        of_evaluation = any(name.startswith("eval_") for name in numbers)
        evaluates = of_evaluation or self._progress.validation_batch is not None
        stage = "validation" if evaluates else "training"
        values = {
            curve: value
            for name, value in numbers.items()
            if (curve := self._curve(name, stage)) is not None
        }
        self._logs += 1
        self._steps.add(values, self._logs)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the end of the evaluation."""
        self._in_hand = self._in_hand and _has_more_to_do(control)
        self._steps.train()
        self._end_if_asked(control)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record that the step is complete."""
        self._in_hand = False

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the last steps, and the reason if the fit ended early."""
        if not self._steps.kept:
            self._keep()
        self._steps.train()
        early = control.should_training_stop and state.global_step < state.max_steps
        if early and not self._steps.stopped:
            self._progress.ended_by = early_end(self._callbacks, args.metric_for_best_model)

    # The work

    def _keep(self) -> None:
        """Keep the loss of the step that has just ended."""
        if self._loss is not None and self._losses:
            self._steps.keep({self._loss: copied(sum(self._losses[1:], self._losses[0]))})

    def failed(self) -> None:
        """Record the batch in which the fit failed."""
        progress = self._progress
        if progress.phase == "validating":
            if (progress.validation_batch or 0) != self._validation_batches:
                progress.validation_batch = (progress.validation_batch or 0) + 1
        elif (
            progress.training_began is not None
            and progress.batch != progress.batches
            and not self._in_hand
        ):
            progress.batch += 1

    def release(self) -> None:
        """Read the last values, and drop device tensors."""
        self._losses.clear()
        self._steps.close()

    def _end_if_asked(self, control: Any) -> None:
        if self._steps.stopped:
            self._progress.stopping = True
            control.should_training_stop = True

    def _curve(self, name: str, stage: str) -> Curve | None:
        if name.removeprefix("eval_") in COUNTERS or name.endswith(BOOKKEEPING):
            return None
        if (name, stage) == (LOSS, "training"):
            return None  # the logged loss is an average of the returned losses
        if (name, stage) not in self._curves:
            every = "epoch" if stage == "validation" else "step"
            self._curves[name, stage] = self._progress.curves.follow(
                name, metric_of(name, stage), stage, every, on_bar=name not in ON_REQUEST
            )
        return self._curves[name, stage]


def _has_more_to_do(control: Any) -> bool:
    """Return whether the Trainer will log, evaluate or save after the step."""
    return bool(control.should_log or control.should_evaluate or control.should_save)


@contextmanager
def _wrapped(trainer: Any, method: Callable[..., Any]) -> Iterator[None]:
    """Replace a Trainer's method with a function of the same name.

    The function receives the original as its first argument.
    """
    name = method.__name__
    original, own = getattr(trainer, name, None), name in vars(trainer)
    if original is None:  # this release does not have the method
        yield
        return
    setattr(trainer, name, functools.wraps(original)(functools.partial(method, original)))
    try:
        yield
    finally:
        if own:
            setattr(trainer, name, original)
        else:
            vars(trainer).pop(name, None)


@functools.lru_cache(maxsize=1)
def monitor_class() -> Callable[[FitReport], TransformersMonitorBase]:
    """Return the callback class, which is derived from transformers' base class."""
    callback = sys.modules["transformers.trainer_callback"].TrainerCallback
    return type("FitMonitor", (TransformersMonitorBase, callback), {})
