"""Start ``vllm serve`` as a child process, wait until it is ready, and stop it."""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from hpu_magic import backend, child_python
from hpu_magic.errors import HPUError
from hpu_magic.parallel.guard import Guard, end
from hpu_magic.plain_text import printable
from hpu_magic.runtime.device.free_cards import VISIBLE

HOST = "127.0.0.1"
_PROGRAM = "vllm.entrypoints.cli.main"
_LINES = 2000  # lines of output to keep
_POLL = 0.25  # seconds
_ANSWER = 5.0  # seconds
_ERROR = re.compile(r"^(?!.*\bWARNING\b).*?(?<![\w.])((?:[\w.]*(?:Error|Exception)|error): .+)")
_OURS = {
    "--host": "the server listens only on this machine",
    "--port": "write --port before the options of vLLM, as --port 8000",
    "--tensor-parallel-size": "pass --cards N",
    "-tp": "pass --cards N",
}


class ModelServer:
    """A ``vllm serve`` process and its children.

    They end together with this process, even if it is killed.

    Parameters
    ----------
    model
        Name or folder of the model.
    options
        Further options of ``vllm serve``.
    port
        TCP port on the loopback interface, which must be free.
    cards
        Module IDs of the cards, one per tensor-parallel rank.
    """

    def __init__(self, model: str, options: Sequence[str], port: int, cards: Sequence[int]) -> None:
        check_options(options)
        self.model = model
        self.port = port
        self.cards = tuple(cards)
        self.lines: deque[str] = deque(maxlen=_LINES)
        """The last lines of the server's output."""
        variables = {**os.environ, **backend.variables_for_children()}
        variables[VISIBLE] = ",".join(map(str, cards))
        arguments = [model, "--host", HOST, "--port", port]
        arguments += ["--tensor-parallel-size", len(cards), *options]
        self._process = subprocess.Popen(
            child_python.command(_PROGRAM, "serve", *arguments),
            env=child_python.environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # An interrupt in the terminal reaches only the notebook, which then stops the server.
            start_new_session=True,
        )
        self._guard = Guard([self._process.pid])
        self._reader = threading.Thread(target=self._read, name="hpu_magic serve", daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        """Base address of the OpenAI-compatible API."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def pid(self) -> int:
        """PID of the API server; its children hold the cards."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def wait_until_ready(self, timeout: float, progress: Callable[[str], None]) -> None:
        """Wait until the server answers, and pass its last line of output to `progress`.

        If an exception is raised, an interrupt included, the server has been stopped.

        Raises
        ------
        HPUError
            The process ended, or it was not ready after `timeout` seconds.
        """
        until = time.monotonic() + timeout
        try:
            while not self._answers():
                if not self.running:
                    raise HPUError(self._how_ended())
                if time.monotonic() > until:
                    raise HPUError(
                        f"The server of {self.model!r} is not ready after {timeout:g} s: pass "
                        f"--timeout with more seconds. Its last line was: {self._last_line()}"
                    )
                progress(self._last_line())
                time.sleep(_POLL)
        except BaseException:
            self.stop()
            raise

    def get(self, path: str) -> str:
        """Return the text that the server sends for a path; raise OSError if it does not answer."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=_ANSWER)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise OSError(f"{path} returned status {answer.status}")
        return text

    def stop(self) -> None:
        """End the server and its children, which frees the cards."""
        with suppress(psutil.NoSuchProcess):
            end([psutil.Process(self.pid)])
        self._process.wait()
        self._guard.dismiss()
        self._reader.join(_ANSWER)

    def _answers(self) -> bool:
        try:
            self.get("/health")
        except OSError:
            return False
        return self.running  # otherwise, another program answered

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                if text := printable(line.strip()):
                    self.lines.append(text)

    def _last_line(self) -> str:
        return self.lines[-1] if self.lines else "none"

    def _how_ended(self) -> str:
        self._reader.join(_ANSWER)
        errors = (match[1] for match in map(_ERROR.search, list(self.lines)) if match)
        # The first error is the cause; later ones report that a child process has failed.
        reason = next(errors, self._last_line())
        return (
            f"The server of {self.model!r} ended before it was ready, with exit code "
            f"{self._process.returncode}: {reason}"
        )


def check_options(options: Sequence[str]) -> None:
    """Raise HPUError if an option of vLLM conflicts with one of this command."""
    for option in options:
        name = option.partition("=")[0]
        if name in _OURS:
            raise HPUError(f"{name} cannot be passed to vLLM: {_OURS[name]}.")


def free_port(port: int) -> int:
    """Return `port` if it is free, or any free port if `port` is 0.

    Raises
    ------
    HPUError
        The port is in use or not between 0 and 65535.
    """
    if not 0 <= port <= 65_535:
        raise HPUError(f"--port must be between 0 and 65535, got {port}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise HPUError(
                f"Port {port} cannot be used ({error.strerror}): pass another number, or --port 0 "
                "for any free port."
            ) from None
        return int(probe.getsockname()[1])
