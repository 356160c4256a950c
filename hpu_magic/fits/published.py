"""Publish a fit to other processes and pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpu_magic import sessions
from hpu_magic.fits.head import not_finite_text
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler

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
    """Publish a fit inside the with block, once per second and at the start of each phase.

    The sampler's thread publishes the fit even if a view fails. `stopping` returns whether Stop was
    pressed. `stop` has the same effect as pressing Stop and can be called from any thread; it is
    None if stopping this process does not end the entire fit.
    """
    publisher = _Publisher(progress, model_name[:_LONGEST_NAME], stopping, stop)
    publisher.tick(source)
    subscription = source.subscribe(publisher.tick, rate=1 / _SECONDS_BETWEEN)
    try:
        yield
    finally:
        subscription.close()
        publisher.publication.withdraw()


class _Publisher:
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
        """Publish the current state, unless it was published recently."""
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
            broken=not_finite_text(progress.not_finite)[:_LONGEST_REMARK],
        )

    def _loss(self) -> tuple[str, float | None]:
        """Return the latest loss of the fit or, if it has none, the value of the first curve."""
        curve = self._progress.curves.first
        if curve is None or curve.last is None:
            return "loss", None
        return curve.name, curve.last.value


def _rounded(value: float | None) -> float | None:
    """Return a number rounded to six significant digits."""
    return None if value is None else float(f"{value:.6g}")
