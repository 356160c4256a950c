"""`jupyter console` in a pseudo-terminal: pastes cells and reads the screen."""

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
_CURSOR_REQUEST, _CURSOR = b"\x1b[6n", b"\x1b[1;1R"  # a request for the cursor's position


class Console:
    """A console and its kernel."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._terminal, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self._process = subprocess.Popen(
            [Path(sys.executable).with_name("jupyter"), "console", "--kernel=python3"],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**environment, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=_take_the_terminal,
        )
        os.close(child)
        self._cells = 1
        self.written = ""
        self._until(r"In \[1\]: ")

    def enter(self, cell: str) -> None:
        """Paste and run a cell."""
        self.written = ""
        os.write(self._terminal, f"\x1b[200~{cell}\x1b[201~".encode())
        self._until(re.escape(cell.splitlines()[-1]))
        os.write(self._terminal, b"\x1b\r")
        self._cells += 1

    def wait_for(self, pattern: str) -> None:
        """Read until the output matches a pattern."""
        self._until(pattern)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._terminal, b"\x03")

    def shown(self, cell: str) -> str:
        """Wait for the end of a cell and return its final output."""
        self._until(rf"In \[{self._cells}\]: ")
        last = re.escape(cell.splitlines()[-1])
        # The console draws the cell while it is typed and again when it runs, with these newlines.
        output = re.split(rf"{last} *\r\r\n", _SEQUENCE.sub("", self.written))[-1]
        output = output.partition(f"In [{self._cells}]: ")[0]
        return "\n".join(map(_with_overwrites, output.replace("\r\n", "\n").split("\n"))).strip()

    def run(self, cell: str) -> str:
        """Run a cell and return its output."""
        self.enter(cell)
        return self.shown(cell)

    def _until(self, pattern: str, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern, _SEQUENCE.sub("", self.written)):
            if not select.select([self._terminal], [], [], deadline - time.monotonic())[0]:
                raise TimeoutError(f"{pattern!r} does not occur in {self.written!r}")
            piece = os.read(self._terminal, 65536)
            if _CURSOR_REQUEST in piece:
                os.write(self._terminal, _CURSOR)
            self.written += piece.decode(errors="replace")

    def close(self) -> None:
        """Hang up, as if the terminal window were closed."""
        os.close(self._terminal)  # otherwise the process may wait for a reader
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.killpg(self._process.pid, signal.SIGHUP)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)


def _take_the_terminal() -> None:
    """Connect the process to the terminal, so that it receives Ctrl-C."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _with_overwrites(line: str) -> str:
    """Return a line after carriage returns have overwritten parts of it."""
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()
