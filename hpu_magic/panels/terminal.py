"""The panel where there is no notebook: one line that is written over, then the table."""

from __future__ import annotations

import shutil
import sys
import time

from hpu_magic.panels.result import FitResult

__all__ = ["TerminalView"]

_SECONDS_BETWEEN_LINES = 0.5


class TerminalView:
    """Progress on standard output; silent until the end where that is no terminal."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._due = 0.0
        self._width = 0

    def line(self, text: str) -> None:
        """Show a line of progress in place of the one before."""
        now = time.monotonic()
        if not self._live or now < self._due:
            return
        self._due = now + _SECONDS_BETWEEN_LINES
        text = text[: shutil.get_terminal_size().columns - 1]
        print("\r" + text.ljust(self._width), end="", flush=True)
        self._width = len(text)

    def finish(self, result: FitResult) -> None:
        """Replace the line by the table."""
        if self._width:
            print("\r" + " " * self._width + "\r", end="")
            self._width = 0
        print(result, flush=True)
