"""The view of a fit outside a notebook: a line that is overwritten, then a table."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping

from hpu_magic.panels.front_end import in_console
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.view import Head

_SECONDS_BETWEEN_LINES = 0.5


class TerminalView:
    """Shows progress on standard output, or only the result if that is not a terminal."""

    poll = None

    def __init__(self) -> None:
        self._live = sys.stdout.isatty() or in_console()
        # Do not mix the line with the messages that Lightning prints at the start of a fit.
        self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._width = 0

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Overwrite the progress line."""
        now = time.monotonic()
        if not self._live or now < self._due:
            return
        self._due = now + _SECONDS_BETWEEN_LINES
        text = head.line[: shutil.get_terminal_size().columns - 1]
        print("\r" + text.ljust(self._width), end="", flush=True)
        self._width = len(text)

    def finish(self, table: Mapping[str, str], picture: Mapping[str, str]) -> None:
        """Replace the line with the table."""
        if self._width:
            print("\r" + " " * self._width + "\r", end="")
            self._width = 0
        print(table["text/plain"], flush=True)
