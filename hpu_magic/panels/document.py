"""A Bokeh document as a widget: pages draw it as it is when they open, and hear what changes."""

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

HEARD = "heard"
"""Name of the model whose value, chosen in a page, the kernel is told."""


class DocumentWidget(anywidget.AnyWidget):
    """Shows a layout of Bokeh's.

    A page that opens while the document has long been drawn elsewhere, as after a reload, is
    brought up to date. BokehJS travels as a message to pages that lack it, so that nothing is
    fetched from elsewhere and none of it is left in the saved notebook.

    Parameters
    ----------
    root
        What the document shows.
    restore
        Puts into the models what was sent to pages past them; its argument is the cause, of
        whose changes no page is told.
    drawing
        Held by whoever changes the models.
    on_choice
        Called with what is chosen in a page where the model `HEARD` offers it.
    """

    # As text: anywidget watches a path for changes, and keeps whoever it would tell of them.
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
        """Set once a page has asked for the document."""
        self._restore = restore
        self._drawing = drawing
        self._on_choice = on_choice
        self._document = Document()
        self._document.add_root(root)
        self._document.on_change_dispatch_to(self)
        self.on_msg(self._answer)

    def change(self, events: Sequence[Any]) -> None:
        """Tell the pages what has changed, in the words of Bokeh's wire protocol."""
        self.send({"events": list(events)})

    def close(self) -> None:
        """Let the pages go."""
        super().close()
        # The widget is closed again when it is collected.
        if self._document.roots:
            self._document.remove_on_change(self)
            self._document.clear()

    # Called by Bokeh.
    def _document_patched(self, event: Any) -> None:
        if event.setter is not self:
            self.change(Protocol().create("PATCH-DOC", [event]).content["events"])

    def _answer(self, _widget: Any, asked: Any, _buffers: Any) -> None:
        question = {"question": asked.get("question")}
        if isinstance(chosen := asked.get("chosen"), str):
            self._on_choice(chosen)
        elif asked.get("wanted") == "script":
            self.send({**question, "script": _script()})
        elif asked.get("wanted") == "document":
            with self._drawing:
                self._restore(self)
                told = self._document.to_json(deferred=False)
                self.send({**question, "document": told})
            self.seen.set()


@cache
def _script() -> str:
    folder = Path(bokeh.__file__).parent / "server" / "static" / "js"
    sources = (folder / f"{name}.min.js" for name in ("bokeh", "bokeh-widgets"))
    return "\n".join(source.read_text(encoding="utf-8") for source in sources)
