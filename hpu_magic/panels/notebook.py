"""Show a fit in a notebook: a live panel if the front end supports widgets, otherwise a picture."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape

from hpu_magic.panels.front_end import unattended
from hpu_magic.panels.outputs import Output
from hpu_magic.panels.picture import draw, inline
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.view import Head

PANELS = ("auto", "widget", "picture")

_ANSWER_SECONDS = 1.0
"""Time in seconds within which a fast page with widget support requests the charts."""

_OFTEN, _SELDOM = 2.0, 15.0
"""Seconds between two pictures if no page shows the panel, and the maximum if a page shows it.

If a page shows the panel, the interval grows with the age of the fit, because a picture of a new
fit soon becomes stale.
"""

_ELSEWHERE = (
    "{model} is being trained. While the kernel runs, pages that support widgets show its live "
    "panel; the HPU sidebar and hpu-magic top also show the progress. The picture below shows the "
    "state at the time it was drawn."
)


class NotebookView:
    """Two outputs below the running cell: the live panel, later replaced by a table, and a picture.

    The picture exists from the start, so a notebook that is saved or exported during the fit shows
    the state of the fit. Pages that show the panel hide the picture. If no page shows the panel,
    the picture is drawn more often and with a header.

    ``kinds`` contains names from `line_charts.KINDS`. ``on_stop`` is called once if Stop is
    pressed, and ``on_add`` with the name of a metric if the user requests a chart of it; both may
    be called from any thread. ``panel`` is one of `PANELS`; ``auto`` shows the widget in pages that
    request it.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        head: Head,
        on_stop: Callable[[], None],
        on_add: Callable[[str], None],
        panel: str = "auto",
    ) -> None:
        self._kinds = kinds
        self._widget = None
        if panel == "widget" or (panel == "auto" and not unattended()):
            from hpu_magic.panels.charts import Charts
            from hpu_magic.panels.widget import PanelWidget

            self._widget = PanelWidget(Charts(kinds=kinds, on_add=on_add), on_stop)
            self._widget.head(head.html)
        self._waits_for_page = panel == "widget"
        self._shown_at = time.monotonic()
        self._drawn_at = -math.inf
        self._top, self._picture = Output(), Output()
        text = _ELSEWHERE.format(model=head.model_name)
        bundle = {"text/html": f"<div>{escape(text)}</div>", "text/plain": text}
        self._top.show(bundle | (self._widget.bundle if self._widget is not None else {}))
        self._picture.show({"text/plain": head.line})

    @property
    def poll(self) -> Callable[[], None] | None:
        """The function that the training thread must call if nothing else handles clicks."""
        return None if self._widget is None else self._widget.poll

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Update the panel and, from time to time, the picture."""
        if self._widget is not None:
            self._widget.draw(record, news)
            self._widget.head(head.html)
            if head.stopping:
                self._widget.stopping()
        now = time.monotonic()
        alone = self._alone(now)
        seldom = min(_SELDOM, max(_OFTEN, (now - self._shown_at) / 3))
        if now < self._drawn_at + (_OFTEN if alone else seldom):
            return
        self._drawn_at = now
        picture = draw(record, self._kinds, head.model_name)
        bundle = {"image/svg+xml": picture, "text/plain": head.line}
        if alone:
            bundle["text/html"] = head.html + inline(picture)
        self._picture.show(bundle)

    def _alone(self, now: float) -> bool:
        """Return whether users can only see the picture."""
        if self._widget is None:
            return True
        waited = now - self._shown_at >= _ANSWER_SECONDS
        return waited and not self._waits_for_page and not self._widget.seen

    def finish(self, table: Mapping[str, str], picture: Mapping[str, str]) -> None:
        """Replace the live panel with the table, and draw the complete picture."""
        self._top.show(table, over=True)
        self._picture.show(picture, over=True)
        if self._widget is not None:
            self._widget.finish(table["text/html"] + inline(picture["image/svg+xml"]))
