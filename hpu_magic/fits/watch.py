"""A panel for a plain training loop: ``for batch in hpu_magic.watch(loader): ...``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from types import TracebackType
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.fits import INTERVAL
from hpu_magic.fits.enclosing import Place, place_of
from hpu_magic.fits.fit import check_panel
from hpu_magic.fits.result import FitResult
from hpu_magic.fits.training import Training, TrainingPlan, current_training
from hpu_magic.panels.panel import checked_interval
from hpu_magic.runtime.training.step_report import known_length


class Watch:
    """A loader that shows a panel while it is iterated over."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._training: Training | None = None
        self._validates = self._block = False

    def __len__(self) -> int:
        if self._plan.length is None:
            raise TypeError(f"A {type(self._plan.loader).__name__} has no known length.")
        return self._plan.length * (1 if self._block else self._plan.epochs)

    @property
    def result(self) -> FitResult | None:
        """The result, once the loop has ended; reading it closes the panel of a nested loop."""
        if self._training is None or self._validates:
            return None
        if self._training.waits:
            self._training.end()
        return self._training.result

    @property
    def epoch(self) -> int:
        """The number of the current epoch, starting at 0."""
        return 0 if self._training is None else self._training.source.epoch

    @property
    def stopped(self) -> bool:
        """Whether Stop was pressed."""
        return self._training is not None and self._training.source.stopped

    def log(self, **values: Any) -> None:
        """Log values of the current batch, such as ``loss=loss``.

        Parameters
        ----------
        **values
            Numbers, or tensors with one element. Tensors are only read when a report is due. Values
            whose names start with ``val`` or ``eval`` are validation values.

        Raises
        ------
        HPUError
            A value is not a number, or the loop is not running.
        """
        if self._training is None or self._training.over:
            raise HPUError(
                "The loop is not running: call log in the body of the loop, or in a with "
                "hpu_magic.watch(loader) as watched block."
            )
        self._training.log(values, validation=self._validates)

    def __iter__(self) -> Iterator[Any]:
        return self._batches(place_of(sys._getframe(1)))

    def __enter__(self) -> Watch:
        if self.result is None and self._training is not None:
            raise HPUError(
                "This loop is already running: call hpu_magic.watch(...) once for each loop."
            )
        self._training, self._block = Training(self._plan, None), True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._training is not None
        self._block = False
        if error is None:
            self._training.close()
        else:
            self._training.fail(error)

    def _batches(self, place: Place) -> Iterator[Any]:
        """Yield the batches of all epochs, or those of a validation pass in the current run."""
        training, plan = current_training(), self._plan
        role = "none" if training is None else training.role(plan, place)
        if training is None or role == "none":
            if training is not None:
                training.end()
            training = Training(plan, place)
        before, self._training, self._validates = self._training, training, role == "validation"
        if not self._validates:
            yield from training.epoch(plan.loader) if self._block else training.epochs(plan)
            return
        try:
            yield from training.validation(plan.loader)
        finally:
            self._training, self._validates = before, False


def watch(
    loader: Iterable[Any],
    *,
    epochs: int = 1,
    loss: Callable[[], Any] | None = None,
    total: int | None = None,
    name: str = "loop",
    device: Any = None,
    interval: float = INTERVAL,
    panel: str = "auto",
) -> Watch:
    """Iterate over a loader with a live panel; its Stop button ends the loop after a batch.

    In the body of the loop, log values with ``hpu_magic.watch.log(loss=loss)`` or `Watch.log`, or
    pass a function as `loss`. Tensors are only read when a report is due. A second watch loop in
    the body does not have its own panel; it is treated as validation.

    In ``for epoch in range(3): for batch in hpu_magic.watch(loader):``, each pass is an epoch in
    the same panel. A watch loop counts as the next epoch if it has the same loader, or if it is on
    the same line and has a new loader with the same ``dataset`` or number of batches. Any other
    watch loop between epochs is treated as validation, as is any watch loop under
    ``torch.no_grad()``. The panel is closed when the cell ends or when `Watch.result` is read.
    Watches with different names have separate panels.

    Parameters
    ----------
    loader : iterable
        The batches, for example a DataLoader.
    epochs : int
        Number of passes over the loader in one ``for`` loop. Inside
        ``with hpu_magic.watch(...) as watched``, each ``for batch in watched`` is an epoch in the
        same panel, and this is the planned number of epochs.
    loss : callable, optional
        Function that returns the loss, or a dict of values by name. It is called without arguments
        whenever a report is due after a batch.
    total : int, optional
        Number of batches, for loaders without a length.
    name : str
        Name of the training run.
    device : torch.device or str, optional
        The device used for training; by default, the card if this process uses memory on it, or
        else the CPU.
    interval : float
        Seconds between two samples, from 0.02 to 60. The panel is redrawn at most twice per second.
    panel : str
        As in `hpu_magic.fit`.

    Returns
    -------
    Watch
        An iterable whose ``result`` is available once the loop has ended for any reason.

    Raises
    ------
    HPUError
        An argument is invalid.

    Examples
    --------
    >>> for batch in hpu_magic.watch(loader, epochs=3):  # doctest: +SKIP
    ...     loss = step(batch)
    ...     hpu_magic.watch.log(loss=loss)
    """
    checked_interval(interval)
    check_panel(panel)
    if not isinstance(loader, Iterable):
        raise HPUError(
            f"loader must be an iterable such as a DataLoader, got a {type(loader).__name__}: use "
            "for batch in hpu_magic.watch(loader)."
        )
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise HPUError(f"epochs must be an integer of at least 1, got {epochs!r}.")
    if total is not None and (not isinstance(total, Integral) or total < 0):
        raise HPUError(f"total must be the number of batches, got {total!r}.")
    if epochs > 1 and iter(loader) is loader:
        raise HPUError(
            f"A {type(loader).__name__} can be iterated over only once, not {epochs} times: pass "
            "an iterable that creates a new iterator each time, such as a DataLoader or a list."
        )
    if loss is not None and not callable(loss):
        raise HPUError(
            f"loss must be a function that returns the loss, got a {type(loss).__name__}: use "
            "loss=lambda: loss, or call hpu_magic.watch.log(loss=loss) in the loop."
        )
    length = known_length(loader) if total is None else int(total)
    return Watch(TrainingPlan(loader, length, epochs, name, device, loss, interval, panel))


def _log(**values: Any) -> None:
    """Log values for the innermost loop in this thread; see `Watch.log`."""
    training = current_training()
    if training is None:
        raise HPUError(
            "No watch loop is running: call watch.log(...) in the body of a for batch in "
            "hpu_magic.watch(loader) loop."
        )
    training.log(values)


watch.log = _log  # type: ignore[attr-defined]
