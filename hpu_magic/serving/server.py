"""Start ``vllm serve`` as a child process, wait until it is ready, and stop it."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

import psutil

from hpu_magic import backend, child_python
from hpu_magic.errors import HPUError
from hpu_magic.parallel.cluster import how_ended
from hpu_magic.parallel.guard import Guard, end
from hpu_magic.runtime.device.free_cards import VISIBLE
from hpu_magic.serving.checks import HOST
from hpu_magic.serving.log import ServerLog

_PROGRAM = "vllm.entrypoints.cli.main"
_POLL = 0.25  # seconds
_ANSWER = 5.0  # seconds
_KILLED = f": {-signal.SIGKILL}}}"  # vLLM reports exit codes as {'EngineCore_DP0': -9}


class ModelServer:
    """A ``vllm serve`` process and its children.

    These processes end together with the current process, even if it is killed.

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
        self.model = model
        self.port = port
        self.cards = tuple(cards)
        self.log = ServerLog()
        self._ready = False
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
        self._root = psutil.Process(self._process.pid)
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
        """Whether the process is still running."""
        return self._process.poll() is None

    def wait_until_ready(self, timeout: float, progress: Callable[[str], None]) -> None:
        """Wait until the server answers, and pass its newest line of output to `progress`.

        If an exception or an interrupt ends the wait, the server is stopped first.

        Raises
        ------
        HPUError
            The process ended, or it was not ready after `timeout` seconds.
        """
        until = time.monotonic() + timeout
        try:
            while not self._answers():
                if not self.running:
                    raise HPUError(self.how_ended())
                if time.monotonic() > until:
                    last = self.log.last_line or "none"
                    raise HPUError(
                        f"The server of {self.model!r} is not ready after {timeout:g} s: pass a "
                        f"larger --timeout. Its last line was: {last}"
                    )
                progress(self.log.last_line)
                time.sleep(_POLL)
            self._ready = True
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
        """End the server and its children, which releases the cards; ignore interrupts.

        The children are ended even if the server has already been killed.
        """
        try:
            end([self._root])
            self._process.wait()
            self._guard.dismiss()
            self._reader.join(_ANSWER)
        except KeyboardInterrupt:
            self.stop()
            raise

    def how_ended(self) -> str:
        """Stop the children of a server that has ended, and return how it ended."""
        code = self._process.wait()
        self.stop()
        when = "" if self._ready else " before it was ready"
        text = f"The server of {self.model!r} {how_ended(code)}{when}"
        error = self.log.error(ready=self._ready)
        if code == -signal.SIGKILL or _KILLED in error:
            text += " (Linux kills processes if the host's memory is exhausted)"
        if error:
            return f"{text}: {error}"
        last = self.log.last_line
        return f"{text}. " + (f"Its last line was: {last}" if last else "It printed nothing.")

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
                self.log.add(line)
