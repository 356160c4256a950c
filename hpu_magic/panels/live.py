"""The live panel of a fit: what is new, handed to its widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hpu_magic.panels.charts import Charts
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.view import Head
from hpu_magic.panels.widget import PanelWidget


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
    on_add
        Called, from any thread, with the name of a metric that shall have a chart.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        head: Head,
        on_stop: Callable[[], None],
        on_add: Callable[[str], None],
    ) -> None:
        self._charts = Charts(kinds=kinds, on_add=on_add)
        self._widget = PanelWidget(self._charts, on_stop)
        self._widget.head(head.html)

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
            self._charts.draw(record, news)
            self._charts.flush()
        self._widget.head(head.html)
        if head.stopping:
            self._widget.stopping()

    def finish(self, result: str) -> None:
        """Leave the result, as HTML, in pages that were loaded while the fit ran."""
        self._widget.finish(result)
