"""Read a vLLM server's output: warm-up, new input shapes and errors."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from hpu_magic.plain_text import printable

_KEPT = 2000  # lines
_LAST = 200  # lines that may explain the end of a server that was ready
_ERROR = re.compile(r"^(?!.*\bWARNING\b).*?(?<![\w.])((?:[\w.]*(?:Error|Exception)|error): .+)")
# The plugin does not count compilations, so these messages are counted instead.
_WARMUP = re.compile(r"Warmup finished in (\d+) secs")
_SKIPPED = re.compile(r"Skipping warmup\.\.\.")
_NEW_SHAPE = re.compile(r"Configuration: (\(.+\)) was not warmed-up!")


@dataclass(frozen=True)
class Preparation:
    """The warm-up of a server, and the input shapes that it did not cover.

    ``warmup`` is the duration in seconds of the longest warm-up of any card, or None until the
    warm-up ends and if ``skipped`` is true. ``new_shapes`` is the number of input shapes that
    occurred in requests but not in the warm-up.
    """

    warmup: int | None = None
    skipped: bool = False
    new_shapes: int = 0


class ServerLog:
    """The last lines of a server's output; one thread adds lines, and others read them."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._warmup: int | None = None
        self._skipped = False
        self._shapes: set[str] = set()  # every card reports the same shapes

    @property
    def last_line(self) -> str:
        """The last line, or an empty string."""
        return self._lines[-1] if self._lines else ""

    @property
    def preparation(self) -> Preparation:
        """The warm-up, and the new shapes so far."""
        return Preparation(self._warmup, self._skipped, len(self._shapes))

    def add(self, line: str) -> None:
        """Add a line."""
        text = printable(line.strip())
        if not text:
            return
        self._lines.append(text)
        if match := _WARMUP.search(text):
            self._warmup = max(self._warmup or 0, int(match[1]))
        elif _SKIPPED.search(text):
            self._skipped = True
        elif match := _NEW_SHAPE.search(text):
            self._shapes.add(match[1])

    def error(self, *, ready: bool) -> str:
        """Return the first error, which usually causes the later ones, or an empty string.

        Once a server has been ready, its output may contain errors of single requests, so only its
        last lines are searched.
        """
        lines = list(self._lines.copy())[-_LAST if ready else 0 :]
        return next((match[1] for match in map(_ERROR.search, lines) if match), "")
