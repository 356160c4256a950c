"""A fit as other processes and pages learn of it, beside whatever shows it here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpu_magic import sessions
from hpu_magic.panels.view import what_broke
from hpu_magic.runtime.measure.progress import FitProgress
from hpu_magic.runtime.measure.sampler import Sampler

_SECONDS_BETWEEN = 1.0
_LONGEST_NAME, _LONGEST_REMARK = 60, 200  # characters


@contextmanager
def published(
    source: Sampler,
    progress: FitProgress,
    model_name: str,
    *,
    stopping: Callable[[], bool],
    stop: Callable[[], None] | None,
) -> Iterator[None]:
    """Tell other processes of a fit while the block runs, once a second and at each new phase.

    It does not depend on the panel: a view that fails takes nothing away here.

    Parameters
    ----------
    source
        Calls in its thread.
    progress
        Where the fit stands.
    model_name
        What is trained.
    stopping
        Whether Stop has been pressed, wherever that was.
    stop
        Presses it, from any thread; None where that would not end the whole fit.
    """
    teller = _Teller(progress, model_name[:_LONGEST_NAME], stopping, stop)
    teller.tick(source)
    # How often it is called, the others decide; this alone asks for no more than it tells.
    subscription = source.subscribe(teller.tick, rate=1 / _SECONDS_BETWEEN)
    try:
        yield
    finally:
        subscription.close()
        teller.publication.withdraw()


class _Teller:
    def __init__(
        self,
        progress: FitProgress,
        model_name: str,
        stopping: Callable[[], bool],
        stop: Callable[[], None] | None,
    ) -> None:
        self.publication = sessions.PublishedFit(stop)
        self._progress = progress
        self._model_name = model_name
        self._stopping = stopping
        self._began = time.time()
        self._due = 0.0
        self._phase: sessions.Phase | None = None

    def tick(self, _: Sampler) -> None:
        """Tell what there is to tell, unless it has just been told."""
        now, phase = time.monotonic(), self._phase_now()
        if now >= self._due or phase != self._phase:
            self._due, self._phase = now + _SECONDS_BETWEEN, phase
            self.publication.update(self._fit(phase))

    def _phase_now(self) -> sessions.Phase:
        if self._stopping() or self._progress.stopping:
            return "stopping"
        if self._progress.long_validation:
            return "validating"
        return "starting" if self._progress.training_began is None else "training"

    def _fit(self, phase: sessions.Phase) -> sessions.Fit:
        progress = self._progress
        loss_name, loss = self._loss()
        return sessions.Fit(
            model=self._model_name,
            began=round(self._began, 1),
            phase=phase,
            epoch=None if progress.training_began is None else progress.epoch + 1,
            epochs=progress.epochs,
            batch=progress.batch,
            batches=progress.batches,
            step=progress.steps,
            share=_rounded(progress.share),
            remaining=_rounded(progress.remaining),
            rate=_rounded(progress.steps_per_second),
            loss_name=loss_name[:_LONGEST_NAME],
            loss=_rounded(loss),
            broken=what_broke(progress.not_finite)[:_LONGEST_REMARK],
        )

    def _loss(self) -> tuple[str, float | None]:
        """Return the newest loss of this fit, or the first value that is logged in its place."""
        curve = self._progress.curves.first
        if curve is None or curve.last is None:
            return "loss", None
        return curve.name, curve.last.value


def _rounded(value: float | None) -> float | None:
    """Return a number with as many digits as anybody reads."""
    return None if value is None else float(f"{value:.6g}")
