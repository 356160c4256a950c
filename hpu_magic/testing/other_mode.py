"""A second pytest process, which runs tests of the other mode on request."""

from __future__ import annotations

import os
import pickle
import warnings
from multiprocessing.connection import Connection
from typing import Any

import pytest

from hpu_magic.testing.modes import SERVING


def serve(connection: Connection) -> None:
    """Receive command-line arguments, start pytest with them, and run each requested test."""
    arguments, worker = connection.recv()
    server = _Server(connection, worker)
    pytest.main(arguments, plugins=[server])
    if not server.began:
        server.answer()


class _Server:
    def __init__(self, connection: Connection, worker: dict[str, Any] | None) -> None:
        self._connection = connection
        self._worker = worker
        self._errors: list[str] = []
        self._items: dict[str, pytest.Item] = {}
        self.began = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Act as a pytest-xdist worker, so that only the first process writes files."""
        early_config.stash[SERVING] = True
        vars(early_config)["workerinput"] = self._worker or {"workerid": "hpu", "workercount": 1}

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Disable debuggers, because this process has no keyboard input."""
        config.option.usepdb = config.option.trace = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Discard terminal output, because the terminal belongs to the first process."""
        self._config = config
        manager, name = config.pluginmanager, "terminalreporter"
        if (reporter := manager.get_plugin(name)) is not None:
            nowhere = open(os.devnull, "w")  # noqa: SIM115 (closed at the end of the session)
            config.add_cleanup(nowhere.close)
            manager.unregister(reporter)
            manager.register(type(reporter)(config, nowhere), name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record collection errors."""
        if report.failed:
            self._errors.append(report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the requested tests until the session ends."""
        self._items = {item.nodeid: item for item in session.items}
        self.began = True
        self.answer()
        return True

    def answer(self) -> None:
        """Run the requested tests until the session ends."""
        items = self._items
        while (request := self._connection.recv()) is not None:
            nodeid, following = request
            if nodeid in items:
                item = items[nodeid]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=items.get(following))
            else:
                self._connection.send(("missing", "\n".join(self._errors)))
            self._connection.send(("done", None))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a test report to the first process."""
        content = self._config.hook.pytest_report_to_serializable(
            config=self._config, report=report
        )
        self._connection.send(("report", content))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Send a warning to the first process."""
        message: Any = warning_message.message
        try:
            pickle.dumps(message)
        except Exception:  # noqa: BLE001 (the warning's own code may raise anything)
            message = str(message)
        warning = (
            message,
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        self._connection.send(("warning", (warning, when, nodeid, location)))
