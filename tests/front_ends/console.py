"""`jupyter console` in a pseudo-terminal: cells are pasted, what a person then sees is read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

_SEQUENCE = re.compile(r"\x1b(\[[\d;?]*[A-Za-z]|[=>])")
_WHERE, _HERE = b"\x1b[6n", b"\x1b[1;1R"  # a terminal is asked where its cursor is


class Console:
    """A console and its kernel."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self._process = subprocess.Popen(
            [Path(sys.executable).with_name("jupyter"), "console", "--kernel=python3"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=_take_the_terminal,
        )
        os.close(theirs)
        self._cells = 1
        self.written = ""
        self._until(r"In \[1\]: ")

    def enter(self, cell: str) -> None:
        """Paste a cell and have it run."""
        self.written = ""
        os.write(self._terminal, f"\x1b[200~{cell}\x1b[201~".encode())
        self._until(re.escape(cell.splitlines()[-1]))
        os.write(self._terminal, b"\x1b\r")
        self._cells += 1

    def wait_for(self, pattern: str) -> None:
        """Read until something is written that matches."""
        self._until(pattern)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._terminal, b"\x03")

    def shown(self, cell: str) -> str:
        """Wait for the cell's end and return what it shows, as it stands in the end."""
        self._until(rf"In \[{self._cells}\]: ")
        last = re.escape(cell.splitlines()[-1])
        # The cell is drawn as it is typed and once more as it is run, with these ends of lines.
        output = re.split(rf"{last} *\r\r\n", _SEQUENCE.sub("", self.written))[-1]
        output = output.partition(f"In [{self._cells}]: ")[0]
        return "\n".join(map(_as_it_stands, output.replace("\r\n", "\n").split("\n"))).strip()

    def run(self, cell: str) -> str:
        """Run a cell and return what it shows."""
        self.enter(cell)
        return self.shown(cell)

    def _until(self, pattern: str, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, _SEQUENCE.sub("", self.written)):
            if not select.select([self._terminal], [], [], deadline - time.monotonic())[0]:
                raise TimeoutError(f"nothing like {pattern!r} after {self.written!r}")
            piece = os.read(self._terminal, 65536)
            if _WHERE in piece:
                os.write(self._terminal, _HERE)
            self.written += piece.decode(errors="replace")

    def close(self) -> None:
        """Hang up, as a terminal's window does that is closed."""
        os.close(self._terminal)  # which nobody reads any more, so that nothing waits to be read
        with contextlib.suppress(ProcessLookupError):  # it has heard of that already
            os.killpg(self._process.pid, signal.SIGHUP)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)


def _take_the_terminal() -> None:
    """Have the terminal's keys, such as Ctrl-C, reach the process that is about to begin."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _as_it_stands(line: str) -> str:
    """Return a line with what was written over it."""
    stands = ""
    for part in line.split("\r"):
        stands = part + stands[len(part) :]
    return stands.rstrip()
