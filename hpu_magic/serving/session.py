"""Start and stop the notebook's server, and show its state; a notebook has at most one server."""

from __future__ import annotations

import atexit
import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from hpu_magic.errors import HPUError
from hpu_magic.panels import rate_chart
from hpu_magic.panels.front_end import in_notebook
from hpu_magic.panels.outputs import Output
from hpu_magic.panels.picture import inline
from hpu_magic.serving.checks import (
    check_host_memory,
    check_options,
    check_versions,
)
from hpu_magic.serving.metrics import ServerSample, parse, tokens_per_second
from hpu_magic.serving.report import ServerReport
from hpu_magic.serving.reservations import Reservations
from hpu_magic.serving.server import ModelServer

_INTERVAL = 1.0  # seconds between two samples
_SPAN = 120.0  # seconds that the chart shows
_LINE = 100  # maximum length of the progress line, in characters
_session: ServingSession | None = None


class ServingSession:
    """A running server, its newest samples and its live panel."""

    def __init__(self, server: ModelServer, output: Output | None) -> None:
        self._server = server
        self._output = output
        self._samples: deque[ServerSample] = deque(maxlen=2 + int(_SPAN / _INTERVAL))
        self._ended = threading.Event()
        self._failure = ""
        self._sample()
        self._watch = threading.Thread(target=self._run, name="hpu_magic serving", daemon=True)
        self._watch.start()

    @property
    def server(self) -> ModelServer:
        """The server's process."""
        return self._server

    def report(self, *, on_panel: bool = False) -> ServerReport:
        """Return the current state; `on_panel` means that the panel already shows it."""
        self._sample()
        return self._report(on_panel=on_panel)

    def stop(self) -> None:
        """End the server, and keep the last state as the panel's picture."""
        failed = self.failure()
        self._ended.set()
        self._watch.join()
        self._server.stop()
        if not failed:
            self._show("The server was stopped.")

    def failure(self) -> str:
        """Return how the server ended, or an empty string if it is running."""
        if not self._failure and not self._server.running:
            self._watch.join()
        return self._failure

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL):
            if not self._server.running:
                self._failure = self._server.how_ended()
                self._show(self._failure)
                return
            self._sample()
            self._show()

    def _sample(self) -> None:
        with suppress(OSError, ValueError):  # the server may be too busy to answer
            text = self._server.get("/metrics")
            self._samples.append(parse(text, time.monotonic()))

    def _report(self, *, on_panel: bool = False, ended: str = "") -> ServerReport:
        samples = list(self._samples)[-2:]
        newest = samples[-1] if samples else None
        before = samples[0] if len(samples) == 2 else None
        server = self._server
        return ServerReport(
            server.model,
            server.url,
            server.cards,
            newest,
            before,
            server.log.preparation,
            on_panel=on_panel,
            ended=ended,
        )

    def _show(self, ended: str = "") -> None:
        if self._output is None:
            return
        report, samples = self._report(ended=ended), list(self._samples)
        pairs = itertools.pairwise(samples)
        points = [(after.time, tokens_per_second(before, after)) for before, after in pairs]
        chart = rate_chart.draw("Generated tokens per second", points, _SPAN)
        html = report._repr_html_() + inline(chart)
        self._output.show({"text/plain": repr(report), "text/html": html}, over=bool(ended))


def start(
    model: str, options: Sequence[str], port: int, cards: int, timeout: float
) -> ServerReport:
    """Start a server, wait until it is ready, print its address and show the live panel.

    Raises
    ------
    HPUError
        A server is already running, an argument is invalid, the releases of vLLM and its plugin
        differ, the model is too large for the host, too few cards are free, or the server ended or
        was not ready in time. No process is left running.
    """
    global _session
    if (running := current()) is not None:
        raise HPUError(
            f"{running.server.model} is already being served at {running.server.url}: stop it with "
            "%hpu_serve off."
        )
    if cards < 1:
        raise HPUError(f"--cards must be at least 1, got {cards}.")
    if timeout <= 0:
        raise HPUError(f"--timeout must be positive, got {timeout:g}.")
    check_options(options)
    check_versions()
    check_host_memory(model, options)
    stop()  # a server that has ended
    began = time.monotonic()
    with Reservations() as reserved:
        port = reserved.port(port)
        modules = reserved.cards(cards) or range(cards)
        server, output = _started(model, options, port, modules, timeout)
    _session = ServingSession(server, output)
    seconds = time.monotonic() - began
    print(f"{model} is ready at {server.url} after {seconds:.0f} s. To stop it: %hpu_serve off")
    return _session.report(on_panel=output is not None)


def _started(
    model: str, options: Sequence[str], port: int, cards: Sequence[int], timeout: float
) -> tuple[ModelServer, Output | None]:
    """Start a server; return it when it is ready, with the output that shows the progress."""
    output = Output() if in_notebook() else None
    server = ModelServer(model, options, port, cards)
    began = time.monotonic()

    def progress(line: str) -> None:
        if output is not None:
            waited = f"Starting {model}, {time.monotonic() - began:.0f} s: {line[:_LINE]}"
            output.show({"text/plain": waited})

    try:
        server.wait_until_ready(timeout, progress)
    except BaseException:
        if output is not None:
            output.show({"text/plain": f"{model} was not started."}, over=True)
        raise
    return server, output


def current() -> ServingSession | None:
    """Return the session of the running server, or None."""
    if _session is None or not _session.server.running:
        return None
    return _session


def report() -> ServerReport:
    """Return the state of the running server, or a report that no server is running."""
    if (session := current()) is not None:
        return session.report()
    return ServerReport(None, ended="" if _session is None else _session.failure())


def stop() -> ServerReport:
    """Stop the server, if one is running."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.stop()
    return ServerReport(None)


atexit.register(stop)
