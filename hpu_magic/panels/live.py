"""The live panel of a fit in a notebook: what is new, handed to its widgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from hpu_magic.panels.charts import Charts
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.result import FitResult
from hpu_magic.panels.view import Head
from hpu_magic.panels.widget import PanelWidget

__all__ = ["LiveView"]


class LiveView:
    """Charts with a Stop button below the running cell, and afterwards picture and table.

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
        self._limit_drawn = math.nan
        self._broken_drawn = 0
        self._head(head)
        self._widget.show()
        self.poll = self._widget.poll

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Append what is new to the charts, and send it."""
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
        self._head(head)

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

    def _head(self, head: Head) -> None:
        headline = f"<b>{head.word}</b> {escape(head.model_name)}, {escape(head.where)}"
        self._widget.head(headline, ", ".join(head.details), head.share, head.broken)

    def finish(self, result: FitResult) -> None:
        """Put the picture in the panel's place, and the table below it."""
        from IPython.display import display

        picture, table = result.bundles()
        self._widget.replace(picture)
        display(table, raw=True)
