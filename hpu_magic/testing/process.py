"""A Python process beside pytest's, which answers over a pipe and never outlives it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

_PROGRAM = (
    # Before its path is set, the working directory is on it.
    "import sys; sys.path[:] = [each for each in sys.path if each[:1] == '/']; "
    "import json; sys.path[:] = json.loads(sys.argv[1]); "
    "from hpu_magic.testing import process; process.run(*sys.argv[2:])"
)


class Companion:
    """Runs a function of one argument, its end of the pipe, in a process of its own.

    It is not in the terminal's foreground, so that only `stop` interrupts it, and ends when this
    process does, however that ends.

    Parameters
    ----------
    function : str
        ``module:name``.
    environment : mapping of str to str
        All of its variables.
    path : sequence of str
        Where it looks for modules.
    folder : Path
        Its working directory.
    """

    def __init__(
        self, function: str, environment: Mapping[str, str], path: Sequence[str], folder: Path
    ) -> None:
        self.connection, theirs = Pipe()
        ending, self._alive = os.pipe()
        command = [sys.executable, "-c", _PROGRAM, json.dumps(list(path)), function]
        try:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(ending)],
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), ending),
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(ending)

    def finish(self, patience: float) -> None:
        """Let it come to its end, which it knows to be wanted; `stop` it if it does not.

        Parameters
        ----------
        patience : float
            Seconds that it may take.
        """
        self._await_end(patience, signal.SIGINT)

    def stop(self, patience: float = 0.0) -> None:
        """Interrupt it, and kill it where it has not ended after so many seconds."""
        if patience and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self._await_end(patience, signal.SIGKILL)

    def _await_end(self, patience: float, otherwise: signal.Signals) -> None:
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.send_signal(otherwise)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.connection.close()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


def ending(process: subprocess.Popen[bytes]) -> str:
    """Say how a process ended: ``signal 9 (SIGKILL)`` or ``exit status 3``."""
    status = process.wait()
    if status < 0:
        return f"signal {-status} ({signal.Signals(-status).name})"
    return f"exit status {status}"


def run(function: str, connection: str, ending: str) -> None:
    """Run a function in the process that `Companion` started."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with, args=(int(ending),), daemon=True).start()
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(Connection(int(connection)))


def _end_with(ending: int) -> None:
    """End this process when nobody has the other end of a pipe open any more."""
    os.read(ending, 1)
    os._exit(1)
