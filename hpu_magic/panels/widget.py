"""The live panel in a notebook: a line of progress, a Stop button and the charts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets
from jupyter_bokeh.widgets import BokehModel

from hpu_magic.panels import bokehjs, palette
from hpu_magic.panels.charts import Charts
from hpu_magic.panels.clicks import answer_while_busy, poller

__all__ = ["PanelWidget"]

_HEADER = """<div style="line-height:1.5;padding:2px 0;font-variant-numeric:tabular-nums">
<div style="color:var(--jp-ui-font-color1,inherit)">{headline}</div>
<div style="color:var(--jp-ui-font-color2,{grey});font-size:12px">{detail}</div>
<div style="height:3px;margin-top:5px;border-radius:2px;background:rgba(128,128,128,.22)">
<div style="height:3px;border-radius:2px;width:{percent:.1f}%;background:{colour}"></div></div>
</div>"""


class PanelWidget:
    """Widgets of one panel and the place in the notebook where they are shown.

    Parameters
    ----------
    charts
        What is drawn.
    on_stop
        Called once, from any thread, when Stop is pressed.
    tooltip
        What the Stop button says it does.
    """

    def __init__(
        self,
        charts: Charts,
        on_stop: Callable[[], None],
        tooltip: str = "End the fit after the current batch",
    ) -> None:
        self.charts = charts
        self._on_stop = on_stop
        self._pressed = threading.Event()
        self._header_text = ""
        self._header = ipywidgets.HTML(layout=ipywidgets.Layout(flex="1 1 auto", width="auto"))
        self._button = ipywidgets.Button(
            description="Stop",
            icon="stop",
            tooltip=tooltip,
            layout=ipywidgets.Layout(width="110px", flex="0 0 auto", margin="4px 0 0 16px"),
        )
        self._button.on_click(self._press)
        self._model = BokehModel(charts.layout, layout=ipywidgets.Layout(width="100%"))
        charts.connect(self._send_patch)
        top = ipywidgets.HBox(
            [self._header, self._button], layout=ipywidgets.Layout(align_items="flex-start")
        )
        self._box = ipywidgets.VBox(
            [top, self._model],
            layout=ipywidgets.Layout(max_width=f"{palette.WIDTH}px", width="100%"),
        )
        self._place: Any = None
        self.poll = poller(self._button)

    def _press(self, _: Any) -> None:
        if self._pressed.is_set():
            return
        self._pressed.set()
        self._button.description = "Stopping"
        self._button.disabled = True
        self._on_stop()

    def _send_patch(self, fragment: str) -> None:
        self._model.send({"msg": "patch", "payload": fragment})

    def show(self) -> None:
        """Display the panel below the running cell."""
        self._place = bokehjs.display_after_loading(self._box)
        answer_while_busy(self._button)

    def head(self, headline: str, detail: str, share: float | None, broken: str = "") -> None:
        """Set the text above the charts.

        Parameters
        ----------
        headline
            HTML.
        detail
            The line below, as text.
        share
            Between 0 and 1, draws the bar.
        broken
            What is wrong, as text; stands before the detail.
        """
        warning = ""
        if broken:
            colour = f"var(--jp-error-color1,{palette.BROKEN})"
            warning = f'<b style="color:{colour}">{escape(broken)}</b>, '
        text = _HEADER.format(
            headline=headline,
            detail=warning + escape(detail),
            percent=100 * min(max(share or 0.0, 0.0), 1.0),
            grey=palette.TEXT,
            colour=palette.TRAIN,
        )
        if text != self._header_text:
            self._header.value = self._header_text = text

    def replace(self, bundle: dict[str, str]) -> None:
        """Show a static result, a MIME bundle, in the panel's place and let the widgets go."""
        if self._place is not None:
            self._place.update(bundle, raw=True)
        for widget in (self._model, self._button, self._header, *self._box.children[:1], self._box):
            widget.close()
        # jupyter_bokeh's widget is closed again when it is collected, and raises with a document.
        document = self.charts.layout.document
        if document is not None:
            document.clear()
