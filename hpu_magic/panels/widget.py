"""The live panel in a notebook: a header, a Stop button and the charts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets

from hpu_magic.panels import palette
from hpu_magic.panels.busy_kernel import PanelListener
from hpu_magic.panels.charts import Charts
from hpu_magic.panels.document import DocumentWidget
from hpu_magic.panels.record import News, RunRecord

_MOST_LEFT = 20
"""Number of finished panels that continue to show their result in pages."""

# Hides the next output: the picture, which is for pages without a live panel.
_HIDING = (
    "<style>.jp-OutputArea-child:has(.hpu-magic-live) + .jp-OutputArea-child{display:none}</style>"
)


class PanelWidget:
    """A panel's widgets; ``on_stop`` is called once, from any thread, if Stop is pressed."""

    def __init__(
        self,
        charts: Charts,
        on_stop: Callable[[], None],
        tooltip: str = "End the fit after the current batch",
    ) -> None:
        self.charts = charts
        self.drawing = threading.RLock()
        """Lock to hold while changing the charts."""
        self._on_stop = on_stop
        self._pressed = threading.Event()
        self._header = ipywidgets.HTML(
            layout=ipywidgets.Layout(flex="1 1 240px", width="auto", max_width="100%")
        )
        self._button = ipywidgets.Button(
            description="Stop",
            icon="stop",
            tooltip=tooltip,
            layout=ipywidgets.Layout(width="110px", flex="0 0 auto", margin="4px 0 0 16px"),
        )
        self._button.on_click(self._press)
        self._document = DocumentWidget(
            charts.layout,
            charts.restore,
            self.drawing,
            charts.choose,
            layout=ipywidgets.Layout(width="100%"),
        )
        charts.connect(self._document.change)
        hiding = ipywidgets.HTML(_HIDING, layout=ipywidgets.Layout(display="none"))
        top = ipywidgets.HBox(
            [self._header, self._button],
            layout=ipywidgets.Layout(align_items="flex-start", flex_flow="row wrap"),
        )
        self._box = ipywidgets.VBox(
            [hiding, top, self._document],
            layout=ipywidgets.Layout(max_width=f"{palette.WIDTH}px", width="100%"),
        )
        self._box.add_class("hpu-magic-live")
        comms = {widget.comm.comm_id for widget in _widgets(self._box) if widget.comm is not None}
        self._listener = PanelListener(comms)

    @property
    def seen(self) -> bool:
        """Whether a page has requested the charts."""
        return self._document.seen.is_set()

    @property
    def poll(self) -> Callable[[], None] | None:
        """The function that the training thread must call if nothing else handles clicks."""
        return self._listener.poll

    @property
    def bundle(self) -> dict[str, Any]:
        """The MIME bundle of the panel, for front ends that show widgets."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._box.model_id}
        return {"application/vnd.jupyter.widget-view+json": view}

    def _press(self, _: Any) -> None:
        if not self._pressed.is_set():
            self.stopping()
            self._on_stop()

    def stopping(self) -> None:
        """Show that Stop has been pressed, in this panel or elsewhere."""
        if not self._pressed.is_set():
            self._pressed.set()
            self._button.description = "Stopping"
            self._button.disabled = True

    def draw(self, record: RunRecord, news: News, *, flush: bool = True) -> None:
        """Draw new samples, and send them to the pages if ``flush`` is true."""
        with self.drawing:
            self.charts.draw(record, news)
            if flush:
                self.charts.flush()

    def head(self, text: str) -> None:
        """Set the header above the charts, as HTML."""
        if text != self._header.value:
            self._header.value = text

    def finish(self, result: str) -> None:
        """Show the result as HTML in open pages, and release all other widgets."""
        self._listener.close()
        kept = (self._box, self._box.layout)
        parts = [widget for widget in _widgets(self._box) if widget not in kept]
        self._box.children = [ipywidgets.HTML(result)]
        for widget in parts:
            widget.close()
        _left.append(self._box)
        if len(_left) > _MOST_LEFT:
            for widget in [*_widgets(_left.popleft())]:
                widget.close()


_left: deque[Any] = deque()


def _widgets(widget: Any) -> Iterator[Any]:
    """Yield a widget and all widgets inside it, with the models of their layouts and styles."""
    yield widget
    for model in (getattr(widget, "layout", None), getattr(widget, "style", None)):
        if model is not None:
            yield model
    for child in getattr(widget, "children", ()):
        yield from _widgets(child)
