"""The live panel of a fit: what is new, handed to its widgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hpu_magic.panels.charts import Charts
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.view import Head
from hpu_magic.panels.widget import PanelWidget

__all__ = ["LiveView"]


class LiveView:
    """Charts with a header and a Stop button.

    Parameters
    ----------
    kinds
        Which charts.
    head
        Where the fit stands.
    on_stop
        Called once, from any thread, when Stop is pressed.
    """

    def __init__(self, kinds: Sequence[str], head: Head, on_stop: Callable[[], None]) -> None:
        self._charts = Charts(kinds=kinds)
        self._widget = PanelWidget(self._charts, on_stop)
        self._widget.head(head.html)
        self._limit_drawn = math.nan
        self._broken_drawn = 0

    @property
    def seen(self) -> bool:
        """Whether a page draws the panel."""
        return self._widget.seen

    @property
    def poll(self) -> Callable[[], None] | None:
        """To be called from the training thread, where clicks are not heard otherwise."""
        return self._widget.poll

    @property
    def bundle(self) -> dict[str, Any]:
        """The panel as a MIME bundle."""
        return self._widget.bundle

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Append what is new to the charts, and send it."""
        with self._widget.drawing:
            self._draw(record, news)
        self._widget.head(head.html)

    def _draw(self, record: RunRecord, news: News) -> None:
        charts = self._charts
        self._draw_rows(record, news)
        for point in news.validation:
            charts.add_validation(*point)
        self._draw_logged(record, news)
        for broken in record.not_finite[self._broken_drawn :]:
            self._broken_drawn += 1
            charts.add_broken(broken.moment - record.began, broken)
        for mark in news.marks:
            charts.add_mark(mark.kind, mark.time, mark.text)
        if record.limit != self._limit_drawn and not math.isnan(record.limit):
            self._limit_drawn = record.limit
            charts.set_limit(self._limit_drawn)
        charts.flush()

    def _draw_rows(self, record: RunRecord, news: News) -> None:
        if any(became == "thinned" for _, became in news.rows):
            self._charts.replace(record.lines)
            return
        for row, became in news.rows:
            if became == "kept" and not all(map(math.isnan, row[1:])):
                self._charts.add(row)

    def _draw_logged(self, record: RunRecord, news: News) -> None:
        for name in dict.fromkeys(name for name, *_ in news.logged):
            new = [(point, became) for one, *point, became in news.logged if one == name]
            thinned = any(became == "thinned" for _, became in new)
            kept = [(time, value) for (time, value), became in new if became == "kept"]
            self._charts.add_logged(name, kept, record.logged[name] if thinned else None)

    def finish(self, result: str) -> None:
        """Leave the result, as HTML, in pages that were loaded while the fit ran."""
        self._widget.finish(result)
