"""A separate Python process that communicates with pytest through a pipe, and ends with it."""

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
    # Without this line, sys.path would contain the working directory until it is replaced.
    "import sys; sys.path[:] = [each for each in sys.path if each[:1] == '/']; "
    "import json; sys.path[:] = json.loads(sys.argv[1]); "
    "from hpu_magic.testing import process; process.run(*sys.argv[2:])"
)


class Companion:
    """Runs a function in a separate process, and passes it one end of a pipe.

    The process is not in the terminal's foreground process group, so Ctrl-C does not interrupt it.
    The child process ends when this process ends, for any reason. `function` has the form
    ``module:name``, `environment` contains all environment variables of the process, and `path` is
    its module search path.
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
        """Wait up to `patience` seconds for the process to end, then interrupt it."""
        self._await_end(patience, signal.SIGINT)

    def stop(self, patience: float = 0.0) -> None:
        """Interrupt the process, and kill it if it has not ended after `patience` seconds."""
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
    """Describe how a process ended, for example ``signal 9 (SIGKILL)`` or ``exit status 3``."""
    status = process.wait()
    if status < 0:
        return f"signal {-status} ({signal.Signals(-status).name})"
    return f"exit status {status}"


def run(function: str, connection: str, ending: str) -> None:
    """Run a function in the process started by a `Companion`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with, args=(int(ending),), daemon=True).start()
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(Connection(int(connection)))


def _end_with(ending: int) -> None:
    """Exit this process when the other end of a pipe is closed."""
    os.read(ending, 1)
    os._exit(1)
