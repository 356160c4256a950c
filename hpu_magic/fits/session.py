"""A fit with a panel: its data source, sampling, views and result."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TypeVar

from hpu_magic.fits import INTERVAL
from hpu_magic.fits.head import head_of
from hpu_magic.fits.published import published
from hpu_magic.fits.result import FitResult
from hpu_magic.panels.front_end import in_notebook
from hpu_magic.panels.line_charts import KINDS, LINE_CHARTS
from hpu_magic.panels.notebook import NotebookView
from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import RunRecord
from hpu_magic.panels.terminal import TerminalView
from hpu_magic.panels.view import DRAW_SECONDS, FitView, Head
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.peak import Peak
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler, sampler
from hpu_magic.runtime.training.source import FitReport, FitSource

_Value = TypeVar("_Value")

# A new fit is drawn more often, because the user is watching it and there is little data to draw.
_FIRST_SECONDS, _FIRST_DRAW_SECONDS = 2.0, 0.2


class FitSession:
    """A monitored fit; ``tick`` runs in the sampler's thread, everything else in the fit's thread.

    If several processes train together, only the first one shows its progress. This process prints
    lines of text, because the Stop button of a panel would only stop one process. `interval` is in
    seconds, and `panel` is one of `notebook.PANELS`.
    """

    def __init__(self, source: FitSource, interval: float = INTERVAL, panel: str = "auto") -> None:
        on_hpu = str(source.device).partition(":")[0] == "hpu"
        self.stop = threading.Event()
        self.progress = FitProgress()
        self._source = source
        self._interval = interval
        self._draw_due = 0.0
        hidden = () if on_hpu else [chart.name for chart in LINE_CHARTS if chart.of_memory]
        self._kinds = [kind for kind in KINDS if kind not in hidden]
        self._peak = Peak() if on_hpu else None
        self._rested_peak: int | None = None
        self._label: str | None = None
        self._drawing = threading.Lock()
        self._views = self._new_views(panel)
        self._running = ExitStack()
        # The time to open the panel does not count as part of the fit.
        self.progress.began = time.monotonic()
        if self._peak is not None:
            self._peak.open()
        self.record = RunRecord(
            sampler(),
            self.progress.began,
            progress=self.progress,
            memory=self._peak is not None,
            peak=self._peak,
        )

    @property
    def device_label(self) -> str:
        """Name of the device; the card's number is unknown until the first tensor is created."""
        if self._peak is None:
            return str(self._source.device)
        if self._label is None and device.own_number() is not None:
            self._label = device.label()
        return self._label or device.label()

    def open(self) -> None:
        """Sample, draw and publish the fit until `close` is called."""
        polls = [view.poll for view in self._views if view.poll is not None]
        report = FitReport(sampler(), self.progress, self.stop, self._interval, polls)
        subscription = sampler().subscribe(self.tick, rate=1 / self._interval)
        self._running.callback(subscription.close)
        self._running.enter_context(self.published())
        self._running.enter_context(self._source.attached(report))

    def close(
        self,
        outcome: str | None = None,
        error: BaseException | None = None,
        moment: float | None = None,
    ) -> FitResult:
        """Replace the views with the result, and return the result.

        `outcome` is None if the fit finished or was ended by Stop. `moment` is the time at which
        the fit ended, in seconds as returned by ``time.monotonic()``; None means now.
        """
        traceback = None if error is None else error.__traceback__
        self._running.__exit__(type(error) if error else None, error, traceback)
        self.progress.metrics = self._source.metrics
        ended = "stopped" if self.progress.stopping else "finished"
        text = f"{type(error).__name__}: {error}" if outcome == "failed" else None
        self.progress.end(outcome or ended, text, moment)
        return self._finish(rested=moment is not None)

    def _new_views(self, panel: str) -> list[FitView]:
        views: list[FitView] = []
        if self._source.ranks == 1 and in_notebook():
            views.append(
                NotebookView(
                    self._kinds,
                    self._head(),
                    self._press_stop,
                    self.progress.curves.add_chart,
                    panel,
                )
            )
        elif self._source.rank == 0:
            views.append(TerminalView())
        return views

    def _press_stop(self) -> None:
        self.stop.set()
        self._source.stop()

    def published(self) -> AbstractContextManager[None]:
        """Publish the fit to other processes, if this is the first rank."""
        if self._source.rank != 0:
            return nullcontext()
        return published(
            sampler(),
            self.progress,
            self._source.model_name,
            stopping=self.stop.is_set,
            stop=self._press_stop if self._source.ranks == 1 else None,
        )

    def tick(self, source: Sampler) -> None:
        """Draw the new samples if a redraw is due."""
        now = time.monotonic()
        if now < self._draw_due:
            return
        with self._drawing:
            if self.progress.over:
                return
            young = now - self.progress.began < _FIRST_SECONDS
            pace = _FIRST_DRAW_SECONDS if young else DRAW_SECONDS
            self._draw_due = max(self._draw_due, now - pace) + pace
            self.collect()

    def rest(self) -> None:
        """Save the peak memory, in case the loop has ended; `close` decides whether to use it."""
        self._rested_peak = None if self._peak is None else self._peak.so_far()

    def collect(self, ended: float | None = None, peak: float | None = None) -> None:
        """Read the new samples and pass them to the views; see `RunRecord.news`."""
        news = self.record.news(ended, peak)
        head = self._head()
        for view in self._views:
            view.draw(head, self.record, news)

    def _head(self) -> Head:
        stopping = self.stop.is_set()
        name = self._source.model_name
        return head_of(self.progress, name, self.device_label, stopping=stopping)

    def _finish(self, *, rested: bool) -> FitResult:
        peak = None if self._peak is None else self._peak.close()
        peak = self._rested_peak if rested else peak
        with self._drawing:
            self.collect(self.progress.ended, peak)
            result = self._result(peak)
            self.record.close()
        for view in self._views:
            view.finish(*result.bundles())
        result.note_shown()
        return result

    def _result(self, peak: int | None) -> FitResult:
        progress = self.progress
        memory = None if self._peak is None else device.memory()
        peak = peak if memory is not None else None
        limit = memory and memory.limit
        observed = progress.observer.observation(
            str(self._source.device),
            progress.training_seconds,
            settings=self._source.settings,
            ranks=self._source.ranks,
            peak=peak,
            limit=limit,
        )
        return FitResult(
            kind=self._source.kind,
            outcome=progress.phase,
            where=progress.where(),
            trained=progress.done(),
            device=self.device_label,
            steps=progress.steps,
            batches=progress.trained,
            seconds=progress.seconds,
            steps_per_second=progress.steps_per_second,
            batches_per_second=progress.batches_per_second,
            card_step=progress.card_step,
            peak=peak,
            limit=limit,
            observed=observed,
            metrics=dict(progress.metrics),
            not_finite=list(progress.not_finite),
            error=progress.error,
            ended_by=progress.ended_by,
            picture=draw(self.record, self._kinds, self._source.model_name),
        )


def observed_fit(
    source: FitSource,
    fit: Callable[[], _Value],
    interval: float,
    panel: str,
    ended: Callable[[FitResult], None],
) -> _Value:
    """Run ``fit()`` with a panel, and return its value; `source` monitors the fit.

    ``ended`` is called with the result, even if the fit fails, before the exception propagates.

    Raises
    ------
    KeyboardInterrupt
        The fit was interrupted; its device memory has been freed.
    """
    session = FitSession(source, interval, panel)
    try:
        session.open()
        value = fit()
    except BaseException as error:
        interrupted = source.interrupted(error)
        ended(session.close("interrupted" if interrupted else "failed", error))
        if not interrupted:
            raise
    else:
        ended(session.close())
        return value
    # The original exception is part of reference cycles that keep the frames of the step and their
    # tensors alive. Collect the garbage and raise a new exception.
    gc.collect()
    raise KeyboardInterrupt
