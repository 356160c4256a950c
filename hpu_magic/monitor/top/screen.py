"""A terminal as a screen with keys, given back whatever ends or stops the program."""

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

_ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, without a cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_STYLES = {"": "", "bold": "\x1b[1m", "selected": "\x1b[7m"}
_PLAIN = "\x1b[0m"

# What terminals send, in either of their two modes.
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
"""A line, and "", "bold" or "selected"."""


class Screen:
    """The terminal while the program draws on it.

    Raises `SystemExit` where the program is told to end.
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
        with contextlib.suppress(OSError):  # of a terminal that is gone there is nothing to restore
            self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @property
    def has_keys(self) -> bool:
        """Whether there is a keyboard."""
        return self._input is not None

    def wake(self) -> None:
        """End a wait; from any thread."""
        with contextlib.suppress(BlockingIOError):  # it is told already
            os.write(self._wake, b".")

    def wait(self) -> list[str]:
        """Wait until something has happened, and return the keys that were pressed."""
        sources = [self._woken] if self._input is None else [self._woken, self._input]
        ready, _, _ = select.select(sources, [], [])
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._input not in ready:
            return []
        typed = os.read(self._input, 1024)  # type: ignore[arg-type]
        return list(_keys(typed.decode(errors="replace"))) if typed else ["q"]

    def size(self) -> tuple[int, int]:
        """Return columns and rows, as the terminal has them now."""
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            size = shutil.get_terminal_size()
        # Some terminals, such as those of continuous integration, tell no size.
        return size.columns or 80, size.lines or 24

    def draw(self, lines: Sequence[Styled]) -> None:
        """Show lines that fit."""
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

    def _give_back(self) -> None:
        if self._input is not None:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()

    def _on_resize(self, number: int, frame: FrameType | None) -> None:
        self.wake()

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        """Let the shell have its terminal while the program is stopped."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._on_stop)
        self._take()
        self.wake()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _keys(typed: str) -> Iterator[str]:
    """Yield the keys in what a terminal sent at once."""
    while typed:
        known = next((each for each in _LONGEST_FIRST if typed.startswith(each)), typed[0])
        typed = typed[len(known) :]
        yield _SEQUENCES.get(known, known)


_LONGEST_FIRST = sorted(_SEQUENCES, key=len, reverse=True)
