"""A Bokeh document as a widget: a page draws the current state, then receives changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import bokeh
from bokeh.document import Document
from bokeh.protocol import Protocol
from traitlets import Unicode

CHOICE = "choice"
"""Name of the model whose value is sent to the kernel when the user changes it."""


class DocumentWidget(anywidget.AnyWidget):
    """Shows a Bokeh layout.

    A page that is opened later, for example after a reload, receives the current state. If a page
    lacks BokehJS, the kernel sends it in a message, so that the page loads nothing from other
    servers and the saved notebook does not contain BokehJS.

    ``restore`` updates the models with the changes that pages have already received. Its parameter
    is the setter of the changes, so that they are not sent to the pages again.
    ``drawing`` locks the models, and ``on_choice`` is called with the value that the user selects
    in the model named `CHOICE`.
    """

    # Pass text, because anywidget would watch a path for changes and keep the widget alive.
    _esm = Path(__file__).with_name("document.js").read_text(encoding="utf-8")
    _bokeh = Unicode(bokeh.__version__).tag(sync=True)

    def __init__(
        self,
        root: Any,
        restore: Callable[[Any], None],
        drawing: AbstractContextManager[Any],
        on_choice: Callable[[str], None],
        **traits: Any,
    ) -> None:
        super().__init__(**traits)
        self.seen = threading.Event()
        """Set when a page has requested the document."""
        self._restore = restore
        self._drawing = drawing
        self._on_choice = on_choice
        self._document = Document()
        self._document.add_root(root)
        self._document.on_change_dispatch_to(self)
        self.on_msg(self._answer)

    def change(self, events: Sequence[Any]) -> None:
        """Send changes to the pages, in Bokeh's wire protocol."""
        self.send({"events": list(events)})

    def close(self) -> None:
        """Disconnect the pages and empty the document."""
        super().close()
        # The garbage collector closes the widget a second time.
        if self._document.roots:
            self._document.remove_on_change(self)
            self._document.clear()

    # Called by Bokeh.
    def _document_patched(self, event: Any) -> None:
        if event.setter is not self:
            self.change(Protocol().create("PATCH-DOC", [event]).content["events"])

    def _answer(self, _widget: Any, request: Any, _buffers: Any) -> None:
        reply = {"request": request.get("request")}
        if isinstance(chosen := request.get("chosen"), str):
            self._on_choice(chosen)
        elif request.get("wanted") == "script":
            self.send({**reply, "script": _script()})
        elif request.get("wanted") == "document":
            with self._drawing:
                self._restore(self)
                self.send({**reply, "document": self._document.to_json(deferred=False)})
            self.seen.set()


@cache
def _script() -> str:
    folder = Path(bokeh.__file__).parent / "server" / "static" / "js"
    sources = (folder / f"{name}.min.js" for name in ("bokeh", "bokeh-widgets"))
    return "\n".join(source.read_text(encoding="utf-8") for source in sources)
