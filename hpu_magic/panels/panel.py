"""The memory of this process's card, live, until it is stopped."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from hpu_magic import units
from hpu_magic.errors import RefusedError
from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import COLUMNS, RunRecord
from hpu_magic.panels.session import DRAW_SECONDS, in_notebook
from hpu_magic.panels.trace import Window
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.memory import MemoryReport, memory
from hpu_magic.runtime.measure.peak import Peak
from hpu_magic.runtime.measure.sampler import Sampler, Subscription, sampler

__all__ = ["MemoryPanel", "panel", "stop_panel"]

_MOST_ROWS = 3600
_running: MemoryPanel | None = None


class MemoryPanel:
    """A live chart of memory in use, peak and limit.

    Parameters
    ----------
    interval
        Seconds between two samples.
    history
        Seconds that the chart shows.
    """

    def __init__(self, interval: float, history: float) -> None:
        from hpu_magic.panels.charts import Charts
        from hpu_magic.panels.widget import PanelWidget

        rows = min(_MOST_ROWS, max(2, math.ceil(history / interval)))
        began = time.monotonic()
        self._peak = Peak()
        self._peak.open(anew=False)
        self._record = RunRecord(sampler(), began, Window(COLUMNS, rows), peak=self._peak)
        self._lock = threading.Lock()
        self._limit_drawn = math.nan
        self._draw_due = 0.0
        self._widget: Any = PanelWidget(
            Charts(rows, kinds=("memory",), window=history),
            self.stop,
            tooltip="Stop the panel and keep its last state as a picture",
        )
        self._head()
        self._widget.show()
        self._subscription: Subscription | None = sampler().subscribe(self._tick, 1 / interval)

    def __repr__(self) -> str:
        state = "live" if self.live else "stopped"
        return f"<memory panel of {device.label()}, {state}>"

    @property
    def live(self) -> bool:
        """Whether the panel still draws."""
        return self._subscription is not None

    def stop(self) -> None:
        """Stop drawing and leave the last state behind as a picture."""
        with self._lock:
            subscription, self._subscription = self._subscription, None
            if subscription is None:
                return
            subscription.close()
            self._peak.close()
            report = memory()
            bundle = {"text/plain": repr(report)}
            if report.stats:
                bundle["image/svg+xml"] = draw(self._record, ("memory",))
            self._widget.replace(bundle)

    def _tick(self, source: Sampler) -> None:
        with self._lock:
            if self._subscription is None:
                return
            for row, _ in self._record.take():
                if not math.isnan(row[COLUMNS.index("in_use")]):
                    self._widget.charts.add(row)
            for mark in self._record.new_marks():
                self._widget.charts.add_mark(mark.kind, mark.time, mark.text)
            if self._record.limit != self._limit_drawn and not math.isnan(self._record.limit):
                self._limit_drawn = self._record.limit
                self._widget.charts.set_limit(self._limit_drawn)
            now = time.monotonic()
            if now >= self._draw_due:
                self._draw_due = now + DRAW_SECONDS
                self._widget.charts.flush()
                self._head()

    def _head(self) -> None:
        last = sampler().last("memory")
        headline = f"<b>Memory</b> of {device.label()}"
        if last is None or not device.taken():
            self._widget.head(
                headline, "no card taken yet: it begins with the first hpu tensor", None
            )
            return
        in_use, limit = last["in_use"], last["limit"]
        peak = max(in_use, self._peak.so_far())
        detail = f"{units.size(in_use)} in use, peak {units.size(peak)}, of {units.size(limit)}"
        self._widget.head(headline, detail, in_use / limit if limit else None)


def panel(*, interval: float = 0.5, history: float = 120.0) -> MemoryPanel | MemoryReport:
    """Show the memory of this process's card, live.

    A panel that is live already is stopped first. It takes no card: before the
    first ``hpu`` tensor it says so and waits.

    Parameters
    ----------
    interval : float
        Seconds between two samples, 0.02 to 60.
    history : float
        Seconds that the chart shows, 1 to 86,400.

    Returns
    -------
    MemoryPanel or MemoryReport
        The panel in a notebook; elsewhere the statistics of this moment.

    Raises
    ------
    RefusedError
        When a number is out of its range.
    """
    global _running
    checked_interval(interval)
    if not 1 <= history <= 86_400:
        raise RefusedError(f"A panel shows 1 to 86400 seconds, not {history:g}.")
    stop_panel()
    if not in_notebook():
        return memory()
    _running = MemoryPanel(interval, history)
    return _running


def stop_panel() -> bool:
    """Stop the live panel; return whether there was one."""
    global _running
    stopping, _running = _running, None
    if stopping is None or not stopping.live:
        return False
    stopping.stop()
    return True


def checked_interval(interval: float) -> float:
    """Return the interval if it is one a panel can keep.

    Raises
    ------
    RefusedError
        When it is not between 0.02 s and 60 s.
    """
    if not 0.02 <= interval <= 60:
        raise RefusedError(f"A panel updates every 0.02 to 60 seconds, not every {interval:g}.")
    return interval
