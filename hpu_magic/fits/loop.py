"""A plain loop as a panel's source: what its body tells, and where it stands."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

from hpu_magic.errors import RefusedError
from hpu_magic.runtime.device import device as devices
from hpu_magic.runtime.measure.curves import LOSS, Curve
from hpu_magic.runtime.measure.metric_names import metric_of
from hpu_magic.runtime.measure.observation import FitSettings, LoaderSettings, loader_settings
from hpu_magic.runtime.measure.read_values import copied, number_of
from hpu_magic.runtime.measure.source import Report
from hpu_magic.runtime.measure.step_report import StepReport, in_steps


class LoopSource:
    """Observes a loop that tells of each batch; each counts as a step.

    Parameters
    ----------
    name
        What is trained.
    device
        Where; None for the card if this process has something on it, else the CPU.
    loss
        Returns the loss of the batch before, or values by name; None where the loop tells them.
    """

    kind = "Loop"

    def __init__(
        self, name: str, device: Any = None, loss: Callable[[], Any] | None = None
    ) -> None:
        self.model_name = name
        self._asked_device = device
        self._loss = loss
        self._report: Report | None = None
        self._steps: StepReport | None = None
        self._curves: dict[str, Curve | None] = {}
        self._told: dict[Curve, Any] = {}
        self._in_batch = self._logged_in_batch = False
        self._epochs_begun = 0
        self._loader: LoaderSettings | None = None
        self.rank, self.ranks = _rank_and_ranks()

    @property
    def device(self) -> Any:
        """Where the loop trains."""
        if self._asked_device is not None:
            return self._asked_device
        torch: Any = sys.modules.get("torch")
        return "hpu" if devices.taken() and torch.hpu.memory_allocated() else "cpu"

    @property
    def epoch(self) -> int:
        """The epoch that runs, from 0."""
        return 0 if self._report is None else self._report.progress.epoch

    @property
    def stopped(self) -> bool:
        """Whether Stop was pressed."""
        return self._report is not None and self._report.stopped.is_set()

    @property
    def empty(self) -> bool:
        """Whether there was no batch."""
        return self._steps is not None and not self._steps.steps

    @property
    def metrics(self) -> dict[str, float]:
        """What was told last under each name."""
        return {
            name: curve.last.value
            for name, curve in self._curves.items()
            if curve is not None and curve.last is not None
        }

    @property
    def settings(self) -> FitSettings:
        """What the loop's loader tells; the rest is the user's own code."""
        return FitSettings(loader=self._loader)

    @contextmanager
    def attached(self, report: Report) -> Iterator[None]:
        """Report the loop that runs inside the block."""
        self._report, self._steps = report, StepReport(report)
        self._curves, self._told, self._epochs_begun = {}, {}, 0
        try:
            yield
        finally:
            self._break_off()
            self._steps.close()

    def stop(self) -> None:
        """End the loop after the batch; it looks by itself at each batch's end."""

    def interrupted(self, error: BaseException) -> bool:
        """Tell whether an interrupt ended the loop."""
        return isinstance(error, KeyboardInterrupt)

    # What the loop tells

    def plan(self, epochs: int | None, batches: int | None) -> None:
        """Note what is planned, as training begins; None for what is not known."""
        progress = self._running().progress
        self._running().begin()
        progress.epochs, progress.batches = epochs, batches
        progress.planned_epochs = epochs
        progress.planned_batches = None if not epochs or batches is None else epochs * batches
        # The loss comes first whatever is told before it.
        self._curves[LOSS] = progress.curves.follow(LOSS, LOSS, "training", "step", returned=True)

    def epoch_began(self, loader: Any) -> None:
        """Mark the epoch; a sampler that shuffles by the epoch hears of it."""
        self.train()
        steps = self._running()
        progress = steps.progress
        reshuffle = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if callable(reshuffle) and self._epochs_begun:
            reshuffle(self._epochs_begun)
        steps.epoch_began(self._epochs_begun, in_steps(progress.batches, 1))
        self._epochs_begun += 1

    def batches(self, loader: Any) -> Iterator[Any]:
        """Return a loader's batches, and measure how long the loop waits for them."""
        waiting = self._running().progress.observer.waiting
        self._loader = loader_settings(loader)
        waiting.asked()
        batches = iter(loader)  # starts worker processes
        waiting.began()
        return waiting.over(batches)

    def batch_began(self) -> None:
        """Note that a batch is on its way."""
        self._in_batch, self._logged_in_batch = True, False

    def batch_ended(self) -> None:
        """Count the batch, and ask for its loss where one is shown."""
        self._in_batch = False
        steps = self._running()
        steps.batch_ended()
        if steps.step_ended():
            self._ask()
            self._hear()
        steps.answer()

    def stops(self) -> bool:
        """Return whether Stop was pressed, and note that it ends the loop."""
        if self.stopped:
            self._running().progress.stopping = True
        return self.stopped

    def epoch_ended(self) -> None:
        """Count the epoch if it was run to its end."""
        progress = self._running().progress
        cut = self._in_batch or self.stopped
        at_the_end = progress.batches is not None and progress.batch >= progress.batches
        self._running().epoch_ended(whole=progress.batch > 0 and (at_the_end or not cut))
        self._break_off()
        self._running().validate(0)  # code between two epochs is not training

    def _break_off(self) -> None:
        """End the loop's last batch, which its body may have left, and keep the last values."""
        steps = self._running()
        ahead = int(self._in_batch and self._logged_in_batch)
        if self._in_batch:
            steps.progress.batch += 1
        self._in_batch = False
        if steps.steps and not steps.heard and not ahead:
            self._ask()
        if self._told:
            told, self._told = self._told, {}
            steps.hear(told, ahead)

    def validate(self, batch: int) -> None:
        """Tell of a validation's batch."""
        self._running().validate(batch)

    def validated(self) -> None:
        """Keep the values of a validation, or between two epochs all, as those of this moment."""
        values = {
            curve: self._told.pop(curve)
            for curve in list(self._told)
            if curve.stage == "validation" or not self._in_batch
        }
        if values:
            steps = self._running()
            steps.add(values, steps.steps)

    def train(self) -> None:
        """Go on after a validation."""
        self.validated()
        self._running().train()

    def go_on(self, batches: int | None, loss: Callable[[], Any] | None) -> None:
        """Take the length and the loss of the watch that runs the next epochs."""
        self._running().progress.batches = batches
        self._loss = loss

    def log(self, values: Mapping[str, Any]) -> None:
        """Keep values until they are shown."""
        self._logged_in_batch = True
        for name, value in values.items():
            number = _number(value)
            if number is None:
                raise RefusedError(
                    f"log takes numbers and tensors of one element, and {name} is {_told(value)}."
                )
            curve = self._curve(name)
            if curve is not None:
                self._told[curve] = number

    # The work

    def _running(self) -> StepReport:
        if self._steps is None:
            raise RuntimeError("The loop has not begun.")
        return self._steps

    def _ask(self) -> None:
        """Call what gives the loss; a mistake in it shall not cost the training."""
        if self._loss is None:
            return
        try:
            value = self._loss()
            self.log(value if isinstance(value, Mapping) else {LOSS: value})
        except Exception as error:  # noqa: BLE001 - it is the user's, whatever it is
            self._loss = None
            warnings.warn(
                f"watch goes on without its loss, which failed: {type(error).__name__}: {error}",
                stacklevel=5,
            )

    def _hear(self) -> None:
        told, self._told = self._told, {}
        self._running().hear(told)

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
    """Return a copy of a tensor, to be read later, or what else is one number; None for others."""
    if not hasattr(value, "detach"):
        return number_of(value)
    is_complex = getattr(getattr(value, "dtype", None), "is_complex", False)
    return copied(value) if value.numel() == 1 and not is_complex else None


def _told(value: Any) -> str:
    kind, shape = f"a {type(value).__name__}", getattr(value, "shape", ())
    if shape:
        return f"{kind} of shape {tuple(shape)}"
    return f"{kind} that no float can hold" if isinstance(value, Real) else kind
