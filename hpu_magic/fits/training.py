"""A plain training loop with a panel, including its epochs and validations."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from hpu_magic.fits.enclosing import Place, passes_through
from hpu_magic.fits.fit import announce
from hpu_magic.fits.loop import LoopSource
from hpu_magic.fits.result import FitResult
from hpu_magic.fits.session import FitSession

_here = threading.local()


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """The arguments of a call to `watch`."""

    loader: Iterable[Any]
    length: int | None  # number of batches per epoch, or None if unknown
    epochs: int  # number of passes over the loader
    name: str  # this field and the next two are passed to `LoopSource`
    device: Any
    loss: Callable[[], Any] | None
    interval: float  # this field and the next one are passed to `FitSession`
    panel: str

    def resembles(self, other: TrainingPlan) -> bool:
        """Return whether the loaders have the same dataset or the same number of batches."""
        data = getattr(self.loader, "dataset", None)
        same_data = data is not None and data is getattr(other.loader, "dataset", None)
        return same_data or self.length == other.length


class _Rest(NamedTuple):
    """The outcome and end time of a waiting training run, in case no further epoch follows."""

    outcome: str | None
    moment: float


class Training:
    """A training run with a panel, which is opened immediately.

    `plan` is the plan of the first watch. `place` is None for a ``with`` block, in which case the
    run ends with the block.
    """

    def __init__(self, plan: TrainingPlan, place: Place | None) -> None:
        self.result: FitResult | None = None
        self.source = LoopSource(plan.name, plan.device, plan.loss)
        self._plan = plan
        self._place = place
        # A watched loop over several epochs is a complete run; enclosing loops repeat the run.
        self._waits = place is not None and bool(place.loops) and plan.epochs == 1
        self._learns = _gradients()
        self._in_epoch = False
        self._validations = 0  # number of nested validations that are running
        self._rest: _Rest | None = None
        self._session: FitSession | None = FitSession(self.source, plan.interval, plan.panel)
        self._session.open()
        self.source.plan(None if self._waits else plan.epochs, plan.length)
        self._siblings = _trainings()
        self._siblings.append(self)
        _close_at_the_end()

    @property
    def over(self) -> bool:
        """Whether the panel has been closed."""
        return self._session is None

    @property
    def waits(self) -> bool:
        """Whether the run is waiting for another epoch, which may never come."""
        return self._rest is not None

    def role(self, plan: TrainingPlan, place: Place) -> Literal["epoch", "validation", "none"]:
        """Return the role of another watch loop in this run.

        A watch loop counts as the next epoch if it uses the same loader, or if it is at the same
        location and its loader has the same dataset or number of batches. Until the enclosing loops
        end, any other watch loop during or between epochs is treated as validation, as is any watch
        loop that runs without gradients.
        """
        first = self._plan
        if self._in_epoch or self._validations:
            return "validation"
        if self._place is None:
            return "epoch" if plan is first else "validation"
        if plan.epochs > 1 or not self._place.loops <= place.loops:
            return "none"
        if _gradients() != self._learns:
            return "validation" if self._learns else "none"
        here = place.lines == self._place.lines
        if plan.name != first.name:
            return "none" if here else "validation"
        same = plan.loader is first.loader or (here and plan.resembles(first))
        return "epoch" if same else "validation"

    def epochs(self, plan: TrainingPlan) -> Iterator[Any]:
        """Yield the batches of each epoch, then wait for more epochs or close the panel."""
        self._rest = None
        self.source.go_on(plan.length, plan.loss)
        outcome = None
        try:
            for _ in range(plan.epochs):
                yield from self.epoch(plan.loader)
        except GeneratorExit:
            # Python does not report whether the body was exited by break, return or an exception.
            outcome = "left"
            raise
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            if self._waits:
                self._wait(outcome)
            else:
                self.close(outcome)

    def epoch(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of one epoch."""
        if self.source.stops():
            return
        self._in_epoch = True
        self.source.epoch_began(loader)
        try:
            for batch in self.source.batches(loader):
                self.source.batch_began()
                yield batch
                self.source.batch_ended()
                if self.source.stops():
                    return
        finally:
            self._in_epoch = False
            self.source.epoch_ended()

    def validation(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of a validation pass."""
        if self.source.stops():
            return
        self._validations += 1
        try:
            for number, batch in enumerate(loader, 1):
                self.source.validate(number)
                yield batch
                if self.source.stops():
                    return
        finally:
            self._validations -= 1
            if self._in_epoch:
                self.source.train()
            elif not self._validations:
                self._validated()
                if not self.source.stopped:  # keep the batch in which Stop was pressed
                    self.source.validate(0)

    def log(self, values: dict[str, Any], *, validation: bool | None = None) -> None:
        """Log values of the current batch or, if ``validation`` is True, of a validation pass."""
        if self._validations if validation is None else validation:
            values = {_of_validation(name): value for name, value in values.items()}
        self.source.log(values)
        if not self._in_epoch and not self._validations:
            self._validated()

    def fail(self, error: BaseException) -> None:
        """Close the panel of a run that was ended by an exception."""
        self.close("interrupted" if self.source.interrupted(error) else "failed", error)

    def end(self, error: BaseException | None = None) -> None:
        """Close the panel because its cell has ended or because no further epoch follows.

        `error` is the exception that ended the cell. The run failed with this error if it was
        raised inside the run's loops.
        """
        loops = frozenset() if self._place is None else self._place.loops
        if error is not None and passes_through(error.__traceback__, loops):
            self.fail(error)
        else:
            self.close("left" if self._rest is None else self._rest.outcome)

    def close(self, outcome: str | None = None, error: BaseException | None = None) -> None:
        """Close the panel and keep the result."""
        session, self._session = self._session, None
        if session is None:
            return
        self._siblings.remove(self)
        rest, self._rest = self._rest, None
        if outcome == "left" and session.progress.stopping:
            outcome = None
        empty = self.source.empty and outcome is None
        self.result = session.close(outcome, error, None if rest is None else rest.moment)
        announce(self.result)
        if empty:
            callers = 3 if self._place is None else 4
            warnings.warn("watch received no batches: the loader is empty.", stacklevel=callers)

    def _wait(self, outcome: str | None) -> None:
        """Keep the panel open for further epochs until the enclosing loops have ended."""
        if self._session is not None:
            self._rest = _Rest(outcome, time.monotonic())
            self._session.rest()

    def _validated(self) -> None:
        """Keep values that were logged between epochs, and extend the run until now."""
        self.source.validated()
        if self._rest is not None:
            self._wait(self._rest.outcome)


def current_training() -> Training | None:
    """Return the innermost training run of this thread that is active or waiting."""
    return next(reversed(_trainings()), None)


def end_trainings(error: BaseException | None = None) -> None:
    """Close the panels of this thread's runs; `error` is the exception that ended the cell."""
    for training in [*_trainings()]:
        training.end(error)


def _trainings() -> list[Training]:
    if not hasattr(_here, "trainings"):
        _here.trainings = []
    return _here.trainings


def _gradients() -> bool:
    """Return whether torch has gradients enabled; True if torch is not loaded."""
    torch: Any = sys.modules.get("torch")
    return torch is None or torch.is_grad_enabled()


def _of_validation(name: str) -> str:
    return name if name.startswith(("val", "eval")) else f"val_{name}"


def _close_at_the_end() -> None:
    """Arrange for `end_trainings` to be called when the running cell or the process ends."""
    from IPython.core.getipython import get_ipython

    if (shell := get_ipython()) is not None:
        shell.events.register("post_run_cell", _cell_ended)
    else:
        atexit.unregister(_script_ended)
        atexit.register(_script_ended)


def _cell_ended(result: Any) -> None:
    end_trainings(result.error_in_exec)


def _script_ended() -> None:
    end_trainings(getattr(sys, "last_value", None))
