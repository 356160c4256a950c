"""The panel where there is no notebook: one line that is written over, then the table."""

from __future__ import annotations

import shutil
import sys
import time

from hpu_magic.panels.front_end import in_console
from hpu_magic.panels.record import News, RunRecord
from hpu_magic.panels.result import FitResult
from hpu_magic.panels.view import Head

_SECONDS_BETWEEN_LINES = 0.5


class TerminalView:
    """Progress on standard output; silent until the end where that is no terminal."""

    poll = None

    def __init__(self) -> None:
        self._live = sys.stdout.isatty() or in_console()
        # What Lightning has to say as a fit begins is not written into the line.
        self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._width = 0

    def draw(self, head: Head, record: RunRecord, news: News) -> None:
        """Show a line of progress in place of the one before."""
        self._line(head)

    def _line(self, head: Head) -> None:
        now = time.monotonic()
        if not self._live or now < self._due:
            return
        self._due = now + _SECONDS_BETWEEN_LINES
        text = head.line[: shutil.get_terminal_size().columns - 1]
        print("\r" + text.ljust(self._width), end="", flush=True)
        self._width = len(text)

    def finish(self, result: FitResult) -> None:
        """Replace the line by the table."""
        if self._width:
            print("\r" + " " * self._width + "\r", end="")
            self._width = 0
        print(result, flush=True)
