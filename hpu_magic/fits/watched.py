"""The loader of a plain loop as it is gone through: its epochs, validations and panel."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from hpu_magic.errors import RefusedError
from hpu_magic.fits.enclosing import Loop, enclosing_loops, passes_through
from hpu_magic.fits.fit import tell
from hpu_magic.fits.loop import LoopSource
from hpu_magic.panels.result import FitResult, running_cell
from hpu_magic.panels.session import Session
from hpu_magic.runtime.measure.step_report import known_length

__all__ = ["Watch", "active_watches", "close_waiting", "watch_between_epochs"]

_here = threading.local()


class Watch:
    """A loader that is watched while it is gone through."""

    def __init__(
        self,
        loader: Iterable[Any],
        source: LoopSource,
        epochs: int,
        total: int | None,
        session: Callable[[], Session],
    ) -> None:
        self._result: FitResult | None = None
        self._loader = loader
        self._source = source
        self._epochs = epochs
        self._length = known_length(loader) if total is None else total
        self._make_session = session
        self._session: Session | None = None
        self._block = False
        self._outer: Watch | None = None
        self._cell: int | None = None
        self._first = self  # the one whose panel this shares
        self._site: _Site | None = None
        self._rest: _Rest | None = None

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(f"A {type(self._loader).__name__} does not know its length.")
        return self._length * (1 if self._block else self._epochs)

    @property
    def result(self) -> FitResult | None:
        """The result of the loop, once it has ended; of a loop in others, this ends its panel."""
        first = self._first
        if first._rest is not None:
            first._close(first._rest.outcome)
        return first._result

    @property
    def epoch(self) -> int:
        """The epoch that runs, from 0."""
        return self._first._source.epoch

    @property
    def stopped(self) -> bool:
        """Whether Stop was pressed."""
        return self._first._source.stopped

    def log(self, **values: Any) -> None:
        """Log values of the batch that runs, such as ``loss=loss``.

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
        elif self._first._session is None:
            raise RefusedError(
                "The loop does not run: call log in its body, or within with "
                "hpu_magic.watch(loader) as watched."
            )
        else:
            self._first._source.log(values)

    def __iter__(self) -> Iterator[Any]:
        active = active_watches()
        if active and active[-1] is not self:
            return self._validation(active[-1])
        if self._block:
            return self._pass(self._loader)
        caller = sys._getframe(1)
        # With epochs the plan is whole; loops around it repeat the fit.
        loops = enclosing_loops(caller) if self._epochs == 1 else frozenset()
        self._site = _Site(caller.f_code, caller.f_lasti, loops)
        before = watch_between_epochs(loops)
        if before is None:
            self._first = self
            return self._whole(nested=bool(loops))
        if before._repeated_by(self):
            self._first = before
            return self._whole(nested=True)
        if before._is_at(self._site):  # under another name: another fit
            before._close()
            self._first = self
            return self._whole(nested=True)
        return self._validation(before)

    def __enter__(self) -> Watch:
        self._open(block=True, epochs=self._epochs)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(None if error is None else self._outcome_of(error), error)

    def _is_at(self, site: _Site) -> bool:
        return self._site is not None and self._site[:2] == site[:2]

    def _repeated_by(self, other: Watch) -> bool:
        """Return whether another watch goes on with this fit as its next epoch."""
        assert other._site is not None
        same = self._is_at(other._site) or other._loader is self._loader
        return same and other._source.model_name == self._source.model_name

    def _outcome_of(self, error: BaseException) -> str:
        return "interrupted" if self._source.interrupted(error) else "failed"

    def _open(self, *, block: bool, epochs: int | None) -> None:
        if self._session is not None:
            raise RefusedError("This loop runs already: call hpu_magic.watch(...) once for each.")
        self._session = self._make_session()
        self._cell = running_cell()
        self._block = block
        self._session.open()
        self._source.plan(epochs, self._length)
        active_watches().append(self)

    def _close(self, outcome: str | None = None, error: BaseException | None = None) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        rest, self._rest = self._rest, None
        if rest is None:
            _here.active.remove(self)
        else:
            _here.between = None
        self._block = False
        empty = self._source.empty and outcome is None
        self._result = session.close(outcome, error, None if rest is None else rest.moment)
        tell(self._result)
        if empty:
            warnings.warn("watch saw no batch: the loader is empty.", stacklevel=3)

    def _whole(self, *, nested: bool) -> Iterator[Any]:
        """Yield the batches of all epochs, with a panel of their own or that of the first.

        Parameters
        ----------
        nested
            Whether a loop around this one may go on with further epochs.
        """
        first = self._first
        if first._rest is None:
            first._open(block=False, epochs=None if nested else self._epochs)
        else:
            first._go_on(self)
        outcome = None
        try:
            for _ in range(self._epochs):
                yield from first._pass(self._loader)
                if first.stopped:
                    break
        except GeneratorExit:
            # Python does not tell whether the body left by break, return or an exception.
            outcome = "left"
            raise
        except BaseException as error:
            first._close(first._outcome_of(error), error)
            raise
        finally:
            if first._session is not None and nested:
                first._wait(outcome)
            else:
                first._close(outcome)

    def _wait(self, outcome: str | None) -> None:
        """Keep the panel for further epochs, until the loops around this one have ended."""
        assert self._site is not None
        assert self._session is not None
        _here.active.remove(self)
        self._session.rest()
        self._rest = _Rest(self._site.loops, outcome, time.monotonic())
        _here.between = self
        _closed_at_the_end()

    def _go_on(self, other: Watch) -> None:
        """Run again, for an epoch of a watch that has the same panel."""
        self._rest = _here.between = None
        self._source.go_on(other._source, other._length)
        _here.active.append(self)

    def _pass(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of one epoch."""
        source = self._source
        if source.stopped:
            return
        source.epoch_began(loader)
        try:
            for batch in source.batches(loader):
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
        active_watches().append(self)
        try:
            for number, batch in enumerate(self._loader, 1):
                outer._source.validate(number)
                yield batch
        finally:
            _here.active.remove(self)
            self._outer = None
            if outer._rest is None:
                outer._source.train()
            else:
                outer._source.validated()


class _Site(NamedTuple):
    """Where a loop is: the code and its place there, and the loops around it."""

    code: CodeType
    place: int
    loops: frozenset[Loop]


class _Rest(NamedTuple):
    """A loop between two epochs: the loops around it, how it would end, and since when."""

    loops: frozenset[Loop]
    outcome: str | None
    moment: float


def _of_validation(name: str) -> str:
    return name if name.startswith(("val", "eval")) else f"val_{name}"


def active_watches() -> list[Watch]:
    """Return the loops of this thread that run, the innermost last.

    One of another cell was left behind, and only a variable or a traceback still has it.
    """
    if not hasattr(_here, "active"):
        _here.active = []
    cell = running_cell()
    for one in [one for one in _here.active if one._cell != cell]:
        one._close("left")
    return _here.active


def watch_between_epochs(loops: frozenset[Loop] | None = None) -> Watch | None:
    """Return the watch of this thread that is between two epochs.

    It is closed if the loops around it are not among these: they have ended.
    """
    found: Watch | None = getattr(_here, "between", None)
    if found is None or found._rest is None:
        return None
    if found._cell != running_cell() or (loops is not None and not found._rest.loops <= loops):
        found._close(found._rest.outcome)
        return None
    return found


def close_waiting(error: BaseException | None = None) -> None:
    """Close the panel of a loop that waits for further epochs, as the cell or script ends.

    Parameters
    ----------
    error
        What the cell ended with.
    """
    found: Watch | None = getattr(_here, "between", None)
    if found is None or found._rest is None:
        return
    if error is not None and passes_through(error.__traceback__, found._rest.loops):
        found._close(found._outcome_of(error), error)
    else:
        found._close(found._rest.outcome)


def _closed_at_the_end() -> None:
    """Have `close_waiting` called at the end of the running cell, or of the process."""
    from IPython.core.getipython import get_ipython

    if (shell := get_ipython()) is not None:
        shell.events.register("post_run_cell", _cell_ended)
    else:
        atexit.unregister(_script_ended)
        atexit.register(_script_ended)


def _cell_ended(result: Any) -> None:
    close_waiting(result.error_in_exec)


def _script_ended() -> None:
    close_waiting(getattr(sys, "last_value", None))
