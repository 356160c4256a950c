"""One fit with its panel: the callback, the sampling, the view and the result."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from hpu_magic.lightning.monitor import FitMonitorBase
from hpu_magic.panels.front_end import in_notebook
from hpu_magic.panels.notebook import NotebookView
from hpu_magic.panels.picture import draw
from hpu_magic.panels.published import published
from hpu_magic.panels.record import RunRecord
from hpu_magic.panels.result import FitResult
from hpu_magic.panels.terminal import TerminalView
from hpu_magic.panels.view import FitView, Head
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.peak import Peak
from hpu_magic.runtime.measure.progress import FitProgress
from hpu_magic.runtime.measure.sampler import Sampler, device_memory, sampler

__all__ = ["observed_fit"]

# Each drawing wakes the kernel's sending threads, the server and the browser, and with them
# costs the training some 1.5 ms on two cores, however little it carries.
DRAW_SECONDS = 0.5
KINDS = ("loss", "speed", "memory")


class _Session:
    """State of one observed fit; ``tick`` runs in the sampler's thread, the rest in the fit's.

    Of several processes that fit together the first one shows, as lines: the panel's button would
    stop one of them only.
    """

    def __init__(
        self,
        model_name: str,
        device_label: str,
        source: Sampler,
        on_hpu: bool,
        *,
        rank: int = 0,
        ranks: int = 1,
        panel: str = "auto",
    ) -> None:
        self.model_name = model_name
        self.device_label = device_label
        self.stop = threading.Event()
        self.monitor: FitMonitorBase | None = None
        self.progress = FitProgress()
        self._draw_due = 0.0
        self._kinds = KINDS if on_hpu else tuple(kind for kind in KINDS if kind != "memory")
        self._peak = Peak() if on_hpu else None
        self._drawing = threading.Lock()
        self._views = self._shown(rank, ranks, panel)
        # Bringing the panel up takes a moment that is not the fit's.
        self.progress.began = time.monotonic()
        if self._peak is not None:
            self._peak.open()
        self.record = RunRecord(
            source,
            self.progress.began,
            progress=self.progress,
            memory=self._peak is not None,
            peak=self._peak,
        )

    def _shown(self, rank: int, ranks: int, panel: str) -> list[FitView]:
        """Return the views, each with the head of a fit that starts."""
        views: list[FitView] = []
        if ranks == 1 and in_notebook():
            views.append(
                NotebookView(
                    self._kinds,
                    self._head(),
                    self._press_stop,
                    self.progress.curves.ask_for,
                    panel,
                )
            )
        elif rank == 0:
            views.append(TerminalView())
        return views

    @property
    def polls(self) -> list[Callable[[], None]]:
        """What the training is to call now and then, so that its views hear clicks."""
        return [view.poll for view in self._views if view.poll is not None]

    def _press_stop(self) -> None:
        self.stop.set()
        if self.monitor is not None:
            self.monitor.stop()

    def told(self, trainer: Any) -> AbstractContextManager[None]:
        """Tell other processes of the fit, once for all that fit together."""
        if trainer.global_rank != 0:
            return nullcontext()
        return published(
            sampler(),
            self.progress,
            self.model_name,
            stopping=self.stop.is_set,
            stop=self._press_stop if trainer.world_size == 1 else None,
        )

    def tick(self, source: Sampler) -> None:
        """Draw what was sampled since the last time."""
        now = time.monotonic()
        if now < self._draw_due:
            return
        with self._drawing:
            if self.progress.over:
                return
            self._draw_due = max(self._draw_due, now - DRAW_SECONDS) + DRAW_SECONDS
            self.collect()

    def collect(self, now: float | None = None) -> None:
        """Read what is new and hand it to the views; see `RunRecord.take`."""
        news = self.record.news(now)
        head = self._head()
        for view in self._views:
            view.draw(head, self.record, news)

    def _head(self) -> Head:
        stopping = self.stop.is_set()
        return Head.of(self.progress, self.model_name, self.device_label, stopping=stopping)

    def finish(self) -> FitResult:
        """Replace the views by what stays, and return it."""
        with self._drawing:
            self.collect(time.monotonic())
            result = self._result()
            self.record.close()
        for view in self._views:
            view.finish(result)
        result.note_shown()
        return result

    def _result(self) -> FitResult:
        progress = self.progress
        peak = None if self._peak is None else self._peak.close()
        stats = None if self._peak is None else device_memory()
        return FitResult(
            outcome=progress.phase,
            where=progress.where(),
            trained=progress.done(),
            device=self.device_label,
            steps=progress.steps,
            batches=progress.trained,
            seconds=progress.seconds,
            steps_per_second=progress.steps_per_second,
            batches_per_second=progress.batches_per_second,
            peak_memory=peak if stats is not None else None,
            memory_limit=stats["Limit"] if stats is not None else None,
            metrics=dict(progress.metrics),
            not_finite=list(progress.not_finite),
            error=progress.error,
            picture=draw(self.record, self._kinds, self.model_name),
        )


def observed_fit(
    trainer: Any,
    fit: Callable[[], Any],
    model: Any,
    interval: float,
    panel: str,
    ended: Callable[[FitResult], None],
) -> None:
    """Run ``fit`` with a panel.

    Parameters
    ----------
    trainer
        The Lightning Trainer whose fit it is.
    fit
        Runs it.
    model
        The module that is trained, for its name.
    interval
        Seconds between two samples.
    panel
        One of `notebook.PANELS`.
    ended
        Called with the result however the fit ends, before its exception goes on.

    Raises
    ------
    KeyboardInterrupt
        When the fit was interrupted; the device's memory is released by then.
    """
    from hpu_magic.lightning.namespaces import default_namespace, namespace_of, plugins

    on_hpu = trainer.strategy.root_device.type == "hpu"
    label = device.label() if on_hpu else str(trainer.strategy.root_device)
    session = _Session(
        type(model).__name__,
        label,
        sampler(),
        on_hpu,
        rank=trainer.global_rank,
        ranks=trainer.world_size,
        panel=panel,
    )
    monitor_class = plugins(namespace_of(trainer) or default_namespace()).FitMonitor
    monitor = monitor_class(sampler(), session.progress, session.stop, interval, session.polls)
    session.monitor = monitor
    subscription = sampler().subscribe(session.tick, rate=1 / interval)
    interrupted = False
    try:
        with session.told(trainer), _attached(trainer, monitor), _restored_interrupt_handler():
            fit()
    except BaseException as error:
        # Lightning shuts down gracefully on an interrupt and then leaves with SystemExit. Before
        # 2.6 it calls exit(1) for that, a name that IPython hides from the code of a cell.
        interrupted = isinstance(error, KeyboardInterrupt) or (
            isinstance(error, SystemExit | NameError)
            and isinstance(error.__context__, KeyboardInterrupt)
        )
        if not interrupted:
            session.progress.end("failed", f"{type(error).__name__}: {error}")
            raise
    finally:
        subscription.close()
        monitor.release(trainer)
        session.progress.metrics = _numbers(trainer.callback_metrics)
        if not session.progress.over:
            outcome = "stopped" if session.progress.stopping else "finished"
            session.progress.end("interrupted" if interrupted else outcome)
        ended(session.finish())
    if interrupted:
        # The first exception holds the frames of the step, and they its tensors, in cycles: it is
        # collected, and another raised.
        gc.collect()
        raise KeyboardInterrupt


def _numbers(metrics: Any) -> dict[str, float]:
    return {str(name): float(value) for name, value in metrics.items()}


@contextmanager
def _attached(trainer: Any, monitor: Any) -> Iterator[None]:
    """Give the Trainer the callback in place of its progress bar, for one fit."""
    bar = trainer.progress_bar_callback
    shown = bar is not None and getattr(bar, "is_enabled", False)
    if shown:
        bar.disable()
    trainer.callbacks.insert(0, monitor)
    try:
        yield
    finally:
        trainer.callbacks[:] = [one for one in trainer.callbacks if one is not monitor]
        if shown:
            bar.enable()


@contextmanager
def _restored_interrupt_handler() -> Iterator[None]:
    """Undo that Lightning, after an interrupt, leaves the process deaf to the next one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
