"""A panel for a plain training loop: ``for batch in hpu_magic.watch(loader): ...``."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from types import TracebackType
from typing import Any

from hpu_magic.errors import RefusedError
from hpu_magic.fits.fit import FIT_INTERVAL, check_panel, tell
from hpu_magic.fits.loop import LoopSource
from hpu_magic.panels.panel import checked_interval
from hpu_magic.panels.result import FitResult, running_cell
from hpu_magic.panels.session import Session
from hpu_magic.runtime.measure.step_report import known_length

__all__ = ["Watch", "watch"]

_here = threading.local()


def watch(
    loader: Iterable[Any],
    *,
    epochs: int = 1,
    loss: Callable[[], Any] | None = None,
    total: int | None = None,
    name: str = "loop",
    device: Any = None,
    interval: float = FIT_INTERVAL,
    panel: str = "auto",
) -> Watch:
    """Go through a loader with the live panel of a fit; its Stop ends the loop after the batch.

    What is shown is told in the loop's body, by ``hpu_magic.watch.log(loss=loss)`` or the same
    method of what this returns, or asked for by `loss`. Tensors are read only when a report is
    due. A second watch inside the body has no panel: it counts as the validation of the first.

    Parameters
    ----------
    loader : iterable
        Whatever gives the batches.
    epochs : int
        How often a ``for`` goes through it. Within ``with hpu_magic.watch(...) as watched`` each
        ``for batch in watched`` is one epoch of the same panel, and this is how many are planned.
    loss : callable, optional
        Called without arguments after a batch of which values are shown; returns the loss, or a
        dict of values by name.
    total : int, optional
        How many batches there are, of a loader that does not know.
    name : str
        What is trained.
    device : torch.device or str, optional
        Where; left out, the card if this process has something on it.
    interval : float
        Seconds between two samples, 0.02 to 60; the panel is drawn twice a second at most.
    panel : str
        As in `hpu_magic.fit`.

    Returns
    -------
    Watch
        To be iterated; its ``result`` is there when the loop has ended, however it did.

    Raises
    ------
    RefusedError
        When an argument is not what it has to be.

    Examples
    --------
    >>> for batch in hpu_magic.watch(loader, epochs=3):  # doctest: +SKIP
    ...     loss = step(batch)
    ...     hpu_magic.watch.log(loss=loss)
    """
    checked_interval(interval)
    check_panel(panel)
    if not isinstance(loader, Iterable):
        raise RefusedError(
            f"watch goes through a loader, such as a DataLoader, and a {type(loader).__name__} "
            "cannot be gone through: write for batch in hpu_magic.watch(loader)."
        )
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise RefusedError(f"epochs is a number from 1, not {epochs!r}.")
    if total is not None and (not isinstance(total, Integral) or total < 0):
        raise RefusedError(f"total is how many batches there are, not {total!r}.")
    if epochs > 1 and iter(loader) is loader:
        raise RefusedError(
            f"A {type(loader).__name__} can be gone through once, not {epochs} times: give watch "
            "what makes it, such as a DataLoader or a list."
        )
    if loss is not None and not callable(loss):
        raise RefusedError(
            f"loss is a function that returns the loss, not a {type(loss).__name__}: write "
            "loss=lambda: loss, or hpu_magic.watch.log(loss=loss) in the loop."
        )
    source = LoopSource(name, device, loss)
    return Watch(loader, source, epochs, total, lambda: Session(source, interval, panel))


def _log(**values: Any) -> None:
    """Tell the innermost loop of this thread values of its batch; see `Watch.log`."""
    active = _active()
    if not active:
        raise RefusedError(
            "No loop is watched here: call watch.log(...) in the body of for batch in "
            "hpu_magic.watch(loader)."
        )
    active[-1].log(**values)


watch.log = _log  # type: ignore[attr-defined]


class Watch:
    """A loader that is watched while it is gone through.

    Attributes
    ----------
    result : FitResult or None
        What the loop came to, once it has ended.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        source: LoopSource,
        epochs: int,
        total: int | None,
        session: Callable[[], Session],
    ) -> None:
        self.result: FitResult | None = None
        self._loader = loader
        self._source = source
        self._epochs = epochs
        self._length = known_length(loader) if total is None else total
        self._make_session = session
        self._session: Session | None = None
        self._block = False
        self._outer: Watch | None = None
        self._cell: int | None = None

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(f"A {type(self._loader).__name__} does not know its length.")
        return self._length * (1 if self._block else self._epochs)

    @property
    def epoch(self) -> int:
        """The epoch that runs, from 0."""
        return self._source.epoch

    @property
    def stopped(self) -> bool:
        """Whether Stop was pressed."""
        return self._source.stopped

    def log(self, **values: Any) -> None:
        """Tell values of the batch that runs, such as ``loss=loss``.

        Parameters
        ----------
        **values
            Numbers, or tensors of one element, which are read only when a report is due. Names
            that begin with ``val`` or ``eval`` are those of a validation.

        Raises
        ------
        RefusedError
            A value is something else, or the loop does not run.
        """
        if self._outer is not None:
            # One of a validation, whatever it is called within it.
            self._outer.log(**{_of_validation(name): value for name, value in values.items()})
        elif self._session is None:
            raise RefusedError(
                "The loop does not run: call log in its body, or within with "
                "hpu_magic.watch(loader) as watched."
            )
        else:
            self._source.log(values)

    def __iter__(self) -> Iterator[Any]:
        active = _active()
        if active and active[-1] is not self:
            return self._validation(active[-1])
        if self._block:
            return self._pass()
        return self._whole()

    def __enter__(self) -> Watch:
        self._open(block=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._close()
        elif self._source.interrupted(error):
            self._close("interrupted", error)
        else:
            self._close("failed", error)

    def _open(self, *, block: bool) -> None:
        if self._session is not None:
            raise RefusedError("This loop runs already: call hpu_magic.watch(...) once for each.")
        self._session = self._make_session()
        self._cell = running_cell()
        self._block = block
        self._session.open()
        self._source.plan(self._epochs, self._length)
        _active().append(self)

    def _close(self, outcome: str | None = None, error: BaseException | None = None) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        _here.active.remove(self)
        self._block = False
        empty = self._source.empty and outcome is None
        self.result = session.close(outcome, error)
        tell(self.result)
        if empty:
            warnings.warn("watch saw no batch: the loader is empty.", stacklevel=3)

    def _whole(self) -> Iterator[Any]:
        """Yield the batches of all epochs, with a panel of their own."""
        self._open(block=False)
        try:
            for _ in range(self._epochs):
                yield from self._pass()
                if self.stopped:
                    break
        except GeneratorExit:
            # Python does not tell whether the body left by break, return or an exception.
            self._close("left")
            raise
        except KeyboardInterrupt as interrupt:
            self._close("interrupted", interrupt)
            raise
        except BaseException as error:
            self._close("failed", error)
            raise
        self._close()

    def _pass(self) -> Iterator[Any]:
        """Yield the batches of one epoch."""
        source = self._source
        if source.stopped:
            return
        source.epoch_began(self._loader)
        try:
            for batch in source.batches(self._loader):
                source.batch_began()
                yield batch
                source.batch_ended()
                if source.stopped:
                    return
        finally:
            source.epoch_ended()

    def _validation(self, outer: Watch) -> Iterator[Any]:
        """Yield the batches of one epoch as those of a validation of a loop around this."""
        self._outer, self._cell = outer, running_cell()
        _active().append(self)
        try:
            for number, batch in enumerate(self._loader, 1):
                outer._source.validate(number)
                yield batch
        finally:
            _here.active.remove(self)
            self._outer = None
            outer._source.train()


def _of_validation(name: str) -> str:
    return name if name.startswith(("val", "eval")) else f"val_{name}"


def _active() -> list[Watch]:
    """Return the loops of this thread that run, the innermost last.

    One of another cell was left behind, and only a variable or a traceback still has it.
    """
    if not hasattr(_here, "active"):
        _here.active = []
    cell = running_cell()
    for one in [one for one in _here.active if one._cell != cell]:
        one._close("left")
    return _here.active
