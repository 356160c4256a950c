"""A fit in a notebook: the live panel where widgets are shown, a picture where they are not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from html import escape

from hpu_magic.panels.front_end import unattended
from hpu_magic.panels.outputs import Output
from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.result import FitResult
from hpu_magic.panels.view import Head

PANELS = ("auto", "widget", "picture")

_ANSWER_SECONDS = 1.0
"""How long a page that shows widgets takes to ask for the charts, when it is quick."""

_OFTEN, _SELDOM = 2.0, 15.0
"""Seconds between two pictures: where nothing else is seen, and for what is saved meanwhile.

Of a fit that has just begun a picture is soon out of date."""

_ELSEWHERE = (
    "{model} is trained here. As long as the kernel runs, its live panel is in pages that show "
    "widgets, and the HPU sidebar and hpu-magic top tell how the fit stands; the picture below "
    "shows how it stood when it was drawn."
)


class NotebookView:
    """Two outputs below the running cell: the live panel, in the end the table; and a picture.

    The picture is there from the start, so that what is saved or exported meanwhile shows how the
    fit stood. Pages that show the panel hide it; where no page does, it is drawn more often, with
    words above it.

    Parameters
    ----------
    kinds
        Which charts.
    head
        Where the fit stands.
    on_stop
        Called once, from any thread, when Stop is pressed.
    on_add
        Called, from any thread, with the name of a metric that shall have a chart.
    panel
        One of `PANELS`: the widget, no widget, or the widget where a page asks for it.
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
        self._panel = None
        if panel == "widget" or (panel == "auto" and not unattended()):
            from hpu_magic.panels.live import LiveView

            self._panel = LiveView(kinds, head, on_stop, on_add)
        self._hopes = panel == "widget"
        self._shown_at = time.monotonic()
        self._drawn_at = -math.inf
        self._top, self._picture = Output(), Output()
        words = _ELSEWHERE.format(model=head.model_name)
        bundle = {"text/html": f"<div>{escape(words)}</div>", "text/plain": words}
        self._top.show(bundle | (self._panel.bundle if self._panel is not None else {}))
        self._picture.show({"text/plain": head.line})

    @property
    def poll(self) -> Callable[[], None] | None:
        """To be called from the training thread, where clicks are not heard otherwise."""
        return None if self._panel is None else self._panel.poll

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Bring the panel up to date, and now and then the picture."""
        if self._panel is not None:
            self._panel.draw(head, record, news)
        now = time.monotonic()
        alone = self._alone(now)
        seldom = min(_SELDOM, max(_OFTEN, (now - self._shown_at) / 3))
        if now < self._drawn_at + (_OFTEN if alone else seldom):
            return
        self._drawn_at = now
        picture = draw(record, self._kinds, head.model_name)
        bundle = {"image/svg+xml": picture, "text/plain": head.line}
        if alone:
            bundle["text/html"] = head.html + picture
        self._picture.show(bundle)

    def _alone(self, now: float) -> bool:
        """Tell whether people see the picture and nothing else."""
        if self._panel is None:
            return True
        waited = now - self._shown_at >= _ANSWER_SECONDS
        return waited and not self._hopes and not self._panel.seen

    def finish(self, result: FitResult) -> None:
        """Leave the table in the panel's place, and the whole picture."""
        table, picture = result.bundles()
        self._top.show(table, over=True)
        self._picture.show(picture, over=True)
        if self._panel is not None:
            self._panel.finish(table["text/html"] + picture["image/svg+xml"])
