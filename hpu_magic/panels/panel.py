"""A live panel of the device's memory."""

from __future__ import annotations

import math
import threading
import time
from html import escape
from typing import TYPE_CHECKING, Any

from hpu_magic import notebook, units
from hpu_magic.errors import HPUError
from hpu_magic.panels.front_end import in_notebook, unattended
from hpu_magic.panels.header import header
from hpu_magic.panels.line_charts import MEMORY
from hpu_magic.panels.outputs import Output
from hpu_magic.panels.picture import draw, inline
from hpu_magic.panels.record import COLUMNS, RunRecord
from hpu_magic.panels.trace import Window
from hpu_magic.panels.view import DRAW_SECONDS
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.peak import Peak
from hpu_magic.runtime.measure.memory import MemoryReport, memory_of
from hpu_magic.runtime.training.sampler import Sampler, Subscription, sampler

if TYPE_CHECKING:
    from hpu_magic.panels.widget import PanelWidget


_KINDS = (MEMORY.name,)
_MOST_ROWS = 3600
_ANSWER_SECONDS = 5.0
_PICTURE_SECONDS = 2.0
_NOT_LIVE = "A live panel requires a notebook; these are the current values, printed once."
_running: MemoryPanel | None = None


class MemoryPanel:
    """A live chart of the memory in use, its peak and the limit.

    `interval` and `history` are in seconds, and `view` is one of `notebook.PANELS`.
    """

    def __init__(self, interval: float, history: float, view: str = "auto") -> None:
        from IPython.core.interactiveshell import InteractiveShell

        rows = min(_MOST_ROWS, max(2, math.ceil(history / interval)))
        began = time.monotonic()
        self._peak = Peak()
        self._peak.open(reset=False)
        self._record = RunRecord(sampler(), began, Window(COLUMNS, rows), peak=self._peak)
        self._lock = threading.Lock()
        self._draw_due = self._picture_due = 0.0
        # Until this time, pages can still request the widget.
        self._page_due = began + (math.inf if view == "widget" else _ANSWER_SECONDS)
        self._widget = self._new_widget(rows, history) if view != "picture" else None
        self._output = Output()
        self._show()
        self._subscription: Subscription | None = sampler().subscribe(self._tick, 1 / interval)
        self._cells = InteractiveShell.instance().events
        self._cells.register("post_run_cell", self._after_cell)

    def _new_widget(self, rows: int, history: float) -> PanelWidget:
        from hpu_magic.panels.charts import Charts
        from hpu_magic.panels.widget import PanelWidget

        charts = Charts(rows, kinds=_KINDS, window=history)
        tooltip = "Stop the panel and keep its last state as a picture"
        widget = PanelWidget(charts, self.stop, tooltip)
        widget.head(header(*self._head()))
        return widget

    def __repr__(self) -> str:
        state = "live" if self.live else "stopped"
        return f"<memory panel of {device.label()}, {state}>"

    @property
    def live(self) -> bool:
        """Whether the panel is still being updated."""
        return self._subscription is not None

    def stop(self) -> None:
        """Stop updating the panel and keep its last state as a picture."""
        with self._lock:
            subscription, self._subscription = self._subscription, None
            if subscription is None:
                return
            subscription.close()
            self._cells.unregister("post_run_cell", self._after_cell)
            self._peak.close()
            report = memory_of()
            bundle = {"text/plain": repr(report)}
            if report.stats:
                bundle["image/svg+xml"] = draw(self._record, _KINDS)
            self._output.show(bundle, over=True)
            if self._widget is not None:
                picture = bundle.get("image/svg+xml")
                self._widget.finish(inline(picture) if picture else escape(repr(report)))

    def _show(self) -> None:
        """Show the widget, or a picture if no page supports widgets."""
        headline, detail, share = self._head()
        picture = draw(self._record, _KINDS)
        bundle: dict[str, Any] = {
            "text/plain": f"Memory of {device.label()}: {detail}",
            "image/svg+xml": picture,
        }
        if self._widget is not None:
            bundle |= self._widget.bundle
        else:
            bundle["text/html"] = header(headline, detail, share) + inline(picture)
        self._output.show(bundle)

    def _tick(self, source: Sampler) -> None:
        with self._lock:
            if self._subscription is None:
                return
            news = self._record.news()
            now = time.monotonic()
            if self._widget is not None:
                due = now >= self._draw_due
                self._widget.draw(self._record, news, flush=due)
                if due:
                    self._draw_due = now + DRAW_SECONDS
                    self._widget.head(header(*self._head()))
            alone = self._widget is None or not (self._widget.seen or now < self._page_due)
            if alone and now >= self._picture_due:
                self._picture_due = now + _PICTURE_SECONDS
                self._show()

    def _after_cell(self, *_: object) -> None:
        """Draw the state after each cell, because it may be the last cell that a program runs."""
        self._picture_due = 0.0
        sampler().sample()
        self._tick(sampler())

    def _head(self) -> tuple[str, str, float | None]:
        """Return the headline as HTML, the line below it, and the share of memory in use."""
        last = sampler().last("memory")
        headline = f"<b>Memory</b> of {device.label()}"
        if last is None or not device.taken():
            return headline, "no card in use yet; the first hpu tensor acquires one", None
        in_use, limit = last["in_use"], last["limit"]
        peak = max(in_use, self._peak.so_far())
        detail = f"{units.size(in_use)} in use, peak {units.size(peak)}, of {units.size(limit)}"
        return headline, detail, in_use / limit if limit else None


def open_panel(interval: float, history: float, view: str) -> MemoryPanel | MemoryReport:
    """Return a live panel or, outside a notebook, the current statistics.

    Stop any panel that is already live; see `hpu_magic.memory_live`.
    """
    global _running
    checked_interval(interval)
    if not 1 <= history <= 86_400:
        raise HPUError(f"The history must be between 1 and 86400 seconds, got {history:g}.")
    stop_panel()
    if not in_notebook():
        report = memory_of(*notebook.variables())
        report.remarks.append(_NOT_LIVE)
        return report
    if view == "auto" and unattended():
        view = "picture"
    _running = MemoryPanel(interval, history, view)
    return _running


def stop_panel() -> bool:
    """Stop the live panel, and return whether there was one."""
    global _running
    stopping, _running = _running, None
    if stopping is None or not stopping.live:
        return False
    stopping.stop()
    return True


def checked_interval(interval: float) -> float:
    """Return the interval; raise HPUError if it is not between 0.02 s and 60 s."""
    if not 0.02 <= interval <= 60:
        raise HPUError(f"The interval must be between 0.02 and 60 seconds, got {interval:g}.")
    return interval
