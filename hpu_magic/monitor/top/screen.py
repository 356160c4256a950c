"""A full-screen terminal with keyboard input, restored when the program exits or is suspended."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_STYLES = {"": "", "bold": "\x1b[1m", "selected": "\x1b[7m"}
_PLAIN = "\x1b[0m"

# The escape sequences for keys that terminals send in either of their modes.
_SEQUENCES = {
    **{
        f"{start}{letter}": name
        for start in ("\x1b[", "\x1bO")
        for letter, name in (
            ("A", "up"),
            ("B", "down"),
            ("C", "right"),
            ("D", "left"),
            ("H", "home"),
            ("F", "end"),
        )
    },
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1bOP": "?",  # F1
    "\x1b[11~": "?",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "escape",  # Backspace
}

Styled = tuple[str, str]
"""A line of text and its style: "", "bold" or "selected"."""


class Screen:
    """The terminal while the program is drawing on it.

    SIGTERM and SIGHUP raise `SystemExit`.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def __enter__(self) -> Screen:
        for number, handler in (
            (signal.SIGTERM, _end),
            (signal.SIGHUP, _end),
            (signal.SIGWINCH, self._on_resize),
            (signal.SIGTSTP, self._on_stop),
        ):
            self._handlers[number] = signal.signal(number, handler)
        self._take()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):  # the terminal may no longer exist
            self._restore()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def has_keys(self) -> bool:
        """Whether input comes from a keyboard."""
        return self._input is not None

    def wake(self) -> None:
        """Make `wait` return. This method can be called from any thread."""
        with contextlib.suppress(BlockingIOError):  # if the pipe is full, `wait` returns anyway
            os.write(self._wake, b".")

    def wait(self) -> list[str]:
        """Wait for a key press or a call to `wake`, and return the keys that were pressed."""
        sources = [self._woken] if self._input is None else [self._woken, self._input]
        ready, _, _ = select.select(sources, [], [])
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._input not in ready:
            return []
        typed = os.read(self._input, 1024)  # type: ignore[arg-type]
        return list(_keys(typed.decode(errors="replace"))) if typed else ["q"]

    def size(self) -> tuple[int, int]:
        """Return the current number of columns and rows of the terminal."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            size = shutil.get_terminal_size()
        # Some terminals, such as those of CI services, do not report a size.
        return size.columns or 80, size.lines or 24

    def draw(self, lines: Sequence[Styled]) -> None:
        """Display lines, which must fit on the screen."""
        shown = "\n".join(
            f"{_STYLES[style]}{text}{_PLAIN if style else ''}{_END_OF_LINE}"
            for text, style in lines
        )
        sys.stdout.write(f"{_HOME}{shown}{_END_OF_SCREEN}")
        sys.stdout.flush()

    def _take(self) -> None:
        if self._input is not None:
            self._before = termios.tcgetattr(self._input)
            tty.setcbreak(self._input)
        sys.stdout.write(_ENTER)

    def _restore(self) -> None:
        if self._input is not None:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()

    def _on_resize(self, number: int, frame: FrameType | None) -> None:
        self.wake()

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        """Restore the terminal while the program is suspended."""
        self._restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._on_stop)
        self._take()
        self.wake()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _keys(typed: str) -> Iterator[str]:
    """Yield the keys contained in terminal input."""
    while typed:
        key = next((each for each in _LONGEST_FIRST if typed.startswith(each)), typed[0])
        typed = typed[len(key) :]
        yield _SEQUENCES.get(key, key)


_LONGEST_FIRST = sorted(_SEQUENCES, key=len, reverse=True)
