"""A plain loop as the data source of a panel, with its progress and logged values."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device as devices
from hpu_magic.runtime.training.curves import LOSS, Curve
from hpu_magic.runtime.training.logged_values import copied, number_of
from hpu_magic.runtime.training.metric_names import metric_of
from hpu_magic.runtime.training.observation import FitSettings, LoaderSettings, loader_settings
from hpu_magic.runtime.training.source import FitReport
from hpu_magic.runtime.training.step_report import StepReport, in_steps


class LoopSource:
    """Monitors a loop that reports each of its batches; each batch counts as a step.

    If `device` is None, the device is the card if this process uses memory on it, otherwise the
    CPU. `loss` returns the loss of the last batch, or a dict of values by name; it is None if the
    loop logs its values.
    """

    kind = "Loop"

    def __init__(
        self, name: str, device: Any = None, loss: Callable[[], Any] | None = None
    ) -> None:
        self.model_name = name
        self._device = device
        self._loss = loss
        self._report: FitReport | None = None
        self._steps: StepReport | None = None
        self._curves: dict[str, Curve | None] = {}
        self._logged: dict[Curve, Any] = {}
        self._in_batch = self._logged_in_batch = False
        self._epochs_begun = 0
        self._loader: LoaderSettings | None = None
        self.rank, self.ranks = _rank_and_ranks()

    @property
    def device(self) -> Any:
        """The device used for training."""
        if self._device is not None:
            return self._device
        torch: Any = sys.modules.get("torch")
        return "hpu" if devices.taken() and torch.hpu.memory_allocated() else "cpu"

    @property
    def epoch(self) -> int:
        """The number of the current epoch, starting at 0."""
        return 0 if self._report is None else self._report.progress.epoch

    @property
    def stopped(self) -> bool:
        """Whether Stop was pressed."""
        return self._report is not None and self._report.stopped.is_set()

    @property
    def empty(self) -> bool:
        """Whether the loader has not yielded any batches."""
        return self._steps is not None and not self._steps.steps

    @property
    def metrics(self) -> dict[str, float]:
        """The last value logged under each name."""
        return {
            name: curve.last.value
            for name, curve in self._curves.items()
            if curve is not None and curve.last is not None
        }

    @property
    def settings(self) -> FitSettings:
        """The settings of the loader, which are the only known settings of a loop."""
        return FitSettings(loader=self._loader)

    @contextmanager
    def attached(self, report: FitReport) -> Iterator[None]:
        """Report on the loop that runs inside the with block."""
        self._report, self._steps = report, StepReport(report)
        self._curves, self._logged, self._epochs_begun = {}, {}, 0
        try:
            yield
        finally:
            self._break_off()
            self._steps.close()

    def stop(self) -> None:
        """Do nothing, because the loop calls `stops` after each batch."""

    def interrupted(self, error: BaseException) -> bool:
        """Return whether the loop was ended by an interrupt."""
        return isinstance(error, KeyboardInterrupt)

    # Reports by the loop

    def plan(self, epochs: int | None, batches: int | None) -> None:
        """Record the planned epochs and batches at the start of training; None means unknown."""
        progress = self._running().progress
        self._running().begin()
        progress.epochs, progress.batches = epochs, batches
        progress.planned_epochs = epochs
        progress.planned_batches = None if not epochs or batches is None else epochs * batches
        # The loss comes first, even if other values are logged before it.
        self._curves[LOSS] = progress.curves.follow(LOSS, LOSS, "training", "step", returned=True)

    def epoch_began(self, loader: Any) -> None:
        """Mark the start of an epoch, and call the ``set_epoch`` method of the sampler, if any."""
        self.train()
        steps = self._running()
        progress = steps.progress
        reshuffle = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if callable(reshuffle) and self._epochs_begun:
            reshuffle(self._epochs_begun)
        steps.epoch_began(self._epochs_begun, in_steps(progress.batches, 1))
        self._epochs_begun += 1

    def batches(self, loader: Any) -> Iterator[Any]:
        """Return the batches of a loader, and measure how long the loop waits for them."""
        waiting = self._running().progress.observer.waiting
        self._loader = loader_settings(loader)
        waiting.start()
        batches = iter(loader)  # this starts the worker processes
        waiting.iterator_created()
        return waiting.over(batches)

    def batch_began(self) -> None:
        """Record that the loop body has received a batch."""
        self._in_batch, self._logged_in_batch = True, False

    def batch_ended(self) -> None:
        """Count the batch, and read the loss if a report is due."""
        self._in_batch = False
        steps = self._running()
        steps.batch_ended()
        if steps.step_ended():
            self._read_loss()
            logged, self._logged = self._logged, {}
            steps.keep(logged)
        steps.answer()

    def stops(self) -> bool:
        """Return whether Stop was pressed, which ends the loop."""
        if self.stopped:
            self._running().progress.stopping = True
        return self.stopped

    def epoch_ended(self) -> None:
        """Count the epoch if it was complete."""
        progress = self._running().progress
        cut = self._in_batch or self.stopped
        at_the_end = progress.batches is not None and progress.batch >= progress.batches
        self._running().epoch_ended(whole=progress.batch > 0 and (at_the_end or not cut))
        self._break_off()
        self._running().validate(0)  # code between epochs does not count as training

    def _break_off(self) -> None:
        """End the last batch, which the loop may have exited early, and keep its logged values."""
        steps = self._running()
        ahead = int(self._in_batch and self._logged_in_batch)
        if self._in_batch:
            steps.progress.batch += 1
        self._in_batch = False
        if steps.steps and not steps.kept and not ahead:
            self._read_loss()
        if self._logged:
            logged, self._logged = self._logged, {}
            steps.keep(logged, ahead)

    def validate(self, batch: int) -> None:
        """Report a validation batch."""
        self._running().validate(batch)

    def validated(self) -> None:
        """Add values that were logged by a validation or between epochs, at the current time."""
        values = {
            curve: self._logged.pop(curve)
            for curve in list(self._logged)
            if curve.stage == "validation" or not self._in_batch
        }
        if values:
            steps = self._running()
            steps.add(values, steps.steps)

    def train(self) -> None:
        """Continue training after a validation."""
        self.validated()
        self._running().train()

    def go_on(self, batches: int | None, loss: Callable[[], Any] | None) -> None:
        """Use the length and loss function of the watch loop that runs the next epochs."""
        self._running().progress.batches = batches
        self._loss = loss

    def log(self, values: Mapping[str, Any]) -> None:
        """Store logged values until the next report."""
        self._logged_in_batch = True
        for name, value in values.items():
            number = _number(value)
            if number is None:
                raise HPUError(
                    f"{name} is {_description(value)}: log a number or a tensor with one element."
                )
            curve = self._curve(name)
            if curve is not None:
                self._logged[curve] = number

    def _running(self) -> StepReport:
        if self._steps is None:
            raise RuntimeError("The loop has not started.")
        return self._steps

    def _read_loss(self) -> None:
        """Call the user's loss function; an error in it must not stop the training."""
        if self._loss is None:
            return
        try:
            value = self._loss()
            self.log(value if isinstance(value, Mapping) else {LOSS: value})
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            self._loss = None
            warnings.warn(
                "watch continues without the loss, because the loss function raised "
                f"{type(error).__name__}: {error}",
                stacklevel=5,
            )

    def _curve(self, name: str) -> Curve | None:
        if name not in self._curves:
            belongs, stage, every = metric_of(name, "validation"), "validation", "epoch"
            if belongs == name:
                belongs, stage, every = metric_of(name, "training"), "training", "step"
            curves = self._running().progress.curves
            self._curves[name] = curves.follow(name, belongs, stage, every)
        return self._curves[name]


def _rank_and_ranks() -> tuple[int, int]:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _number(value: Any) -> Any:
    """Return a number, or a copy of a tensor to read later; None for any other value."""
    if not hasattr(value, "detach"):
        return number_of(value)
    is_complex = getattr(getattr(value, "dtype", None), "is_complex", False)
    return copied(value) if value.numel() == 1 and not is_complex else None


def _description(value: Any) -> str:
    kind, shape = f"a {type(value).__name__}", getattr(value, "shape", ())
    if shape:
        return f"{kind} of shape {tuple(shape)}"
    return f"{kind} outside the range of a float" if isinstance(value, Real) else kind
