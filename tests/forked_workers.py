"""Run tests in several processes, which are forks, so that the tests are collected only once.

Each worker runs the next batch of tests that no other worker has taken.
"""

import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest
from forked_python import ForkedPython

_DIGITS = 4  # bytes of the number of a batch


class Worker:
    """A fork that runs tests and sends its reports."""

    def __init__(self, run: Callable[[Connection], None]) -> None:
        self.reports, sender = Pipe(duplex=False)
        self.running: str | None = None
        """Node ID of the test that runs."""
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                run(sender)
                status = 0
            finally:
                if status:
                    traceback.print_exc()
                os._exit(status)
        sender.close()

    def join(self) -> int:
        """Return the exit status, which is negative after a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Sender:
    """The plug-in of a worker that sends what the terminal shows."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._send = connection.send

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Send that a test starts."""
        self._send(("start", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send the result of a phase of a test."""
        hook = self._config.hook
        self._send(
            ("report", hook.pytest_report_to_serializable(config=self._config, report=report))
        )

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        """Send that a test has ended."""
        self._send(("finish", nodeid, location))


class ForkedWorkers:
    """The plug-in that runs the tests in `count` workers.

    `scope` returns a value that is equal for successive tests of a batch. Each worker calls
    `use_private_folders`, and deletes the returned folder at its end. The workers share
    `forked_python`.
    """

    NAME = "forked workers"

    def __init__(
        self,
        count: int,
        scope: Callable[[pytest.Item], Any],
        use_private_folders: Callable[[], str],
        forked_python: ForkedPython | None = None,
    ) -> None:
        self._count = count
        self._scope = scope
        self._use_private_folders = use_private_folders
        self.forked_python = forked_python

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests."""
        if session.testsfailed:
            return None  # errors of the collection
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # tests of several files run at the same time
        folders: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
        folders.getbasetemp()  # created before the fork
        left = {item.nodeid: item for item in session.items}
        while left:  # again if a worker has ended before the end of a batch
            batches = [list(items) for _, items in groupby(left.values(), self._scope)]
            numbers = b"".join(i.to_bytes(_DIGITS, "little") for i in range(len(batches)))
            tasks, sender = os.pipe()
            os.write(sender, numbers)
            os.close(sender)
            tests = _take(batches, tasks)
            work = partial(self._work, session, tests)
            workers = [Worker(work) for _ in range(min(self._count, len(batches)))]
            os.close(tasks)
            _receive(session, workers, left)
        return True

    def _work(
        self, session: pytest.Session, tests: Iterator[pytest.Item], connection: Connection
    ) -> None:
        private = self._use_private_folders()
        config = session.config
        folders: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = Path(tempfile.mkdtemp(prefix="w", dir=folders.getbasetemp()))
        _separate_output(config)
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Sender(config, connection))
        _run(session, tests)
        shutil.rmtree(private, ignore_errors=True)

    def pytest_unconfigure(self) -> None:
        """End the process that forks."""
        if self.forked_python is not None:
            self.forked_python.close()


def _take(batches: Sequence[list[pytest.Item]], tasks: int) -> Iterator[pytest.Item]:
    while number := os.read(tasks, _DIGITS):
        yield from batches[int.from_bytes(number, "little")]


def _run(session: pytest.Session, items: Iterator[pytest.Item]) -> None:
    item = next(items, None)
    while item is not None and not (session.shouldfail or session.shouldstop):
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


def _separate_output(config: pytest.Config) -> None:
    """Capture the output in new files, because forks would share their positions."""
    capturing = getattr(config.pluginmanager.getplugin("capturemanager"), "_global_capturing", None)
    if config.option.capture == "fd" and capturing is not None:
        for stream in (capturing.out, capturing.err):
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno(), inheritable=False)


def _receive(session: pytest.Session, workers: list[Worker], left: dict[str, pytest.Item]) -> None:
    """Report results until all workers have ended, and remove finished tests from `left`."""
    hook = session.config.hook
    pending = {worker.reports: worker for worker in workers}
    try:
        while pending:
            for connection in wait(list(pending)):
                worker = pending[connection]  # type: ignore[index]
                try:
                    kind, *values = worker.reports.recv()
                except EOFError:
                    del pending[worker.reports]
                    _ended(session, worker, left)
                    continue
                if kind == "report":
                    report = hook.pytest_report_from_serializable(
                        config=session.config, data=values[0]
                    )
                    hook.pytest_runtest_logreport(report=report)
                    continue
                nodeid, location = values
                worker.running = nodeid if kind == "start" else None
                if kind == "start":
                    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
                else:
                    del left[nodeid]
                    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    finally:
        for worker in pending.values():
            os.kill(worker.pid, signal.SIGINT)
            worker.join()


def _ended(session: pytest.Session, worker: Worker, left: dict[str, pytest.Item]) -> None:
    """Report a failure of the test that a worker ran when it ended."""
    status = worker.join()
    if worker.running is None:
        if status:
            raise RuntimeError(f"A worker ended with status {status} between two tests.")
        return
    item = left.pop(worker.running)
    report = pytest.TestReport(
        item.nodeid,
        item.location,
        keywords={},
        outcome="failed",
        longrepr=f"The worker ended with status {status} during this test.",
        when="call",
    )
    session.config.hook.pytest_runtest_logreport(report=report)
