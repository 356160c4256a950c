"""Tests of both modes in one session: those of the other mode run in a process of their own.

A process has one mode. Tests marked with the other one go to a second pytest, which has collected
the same tests; its reports are this session's. It holds a card as long as it lives, so it comes
first, and ends before this process takes one.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hpu_magic.runtime.execution.mode import VARIABLE
from hpu_magic.testing.process import Companion, ending

MODES = ("eager", "lazy")
SERVING = pytest.StashKey[bool]()
"""Set in the process that runs the tests of the other mode."""
_PATIENCE = 30.0  # seconds for the last fixtures


class Modes:
    """Decides in which process each test runs."""

    def __init__(self, config: pytest.Config, mode: str) -> None:
        self.mode = mode
        self._config = config
        self._other: OtherMode | None = None
        # As they are before tests change them.
        self._environment, self._path = dict(os.environ), list(sys.path)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test twice that is marked with both modes."""
        if len(_marked(metafunc.definition)) > 1 and "hpu_mode" not in metafunc.fixturenames:
            metafunc.fixturenames.append("hpu_mode")
        if len(_marked(metafunc.definition)) > 1:
            metafunc.parametrize("hpu_mode", MODES)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put first what runs elsewhere, and needs cards that this process has not taken yet."""
        items.sort(key=lambda item: (not self._elsewhere(item), not _on_several_cards(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Run a test of the other mode, and report it as one of this session."""
        if not self._elsewhere(item):
            return None
        goes_on = nextitem is not None and self._elsewhere(nextitem)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem if goes_on else None):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # What an earlier test of this process has set up may be wanted no more.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> Any:
        """Leave the time limit of pytest-timeout to the process that runs the test."""
        return True if self._elsewhere(item) else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> Any:
        """There is none to cancel, either."""
        return True if self._elsewhere(item) else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End the other process, where the session stops before its last test, as by ``-x``."""
        if self._other is not None:
            self._other.finish()

    def _elsewhere(self, item: pytest.Item) -> bool:
        return not self._config.stash.get(SERVING, False) and (
            _mode_of(item) not in (None, self.mode)
        )

    def _reports(
        self, item: pytest.Item, following: pytest.Item | None
    ) -> Iterator[pytest.TestReport]:
        if self._other is None:
            other = MODES[1 - MODES.index(self.mode)]
            self._other = OtherMode(self._config, other, self._environment, self._path)
        try:
            yield from self._other.run(item, following)
        finally:
            if following is None or self._other.ended:
                self._other.stop()
                self._other = None


class OtherMode:
    """A second pytest, in the other mode, that runs the tests that it is told to."""

    def __init__(
        self, config: pytest.Config, mode: str, environment: dict[str, str], path: list[str]
    ) -> None:
        self._config, self._mode = config, mode
        self.ended = False
        environment = {name: value for name, value in environment.items() if name != VARIABLE}
        self._process = Companion(
            "hpu_magic.testing.other_mode:serve",
            environment,
            path,
            Path(config.invocation_params.dir),
        )
        self._connection = self._process.connection
        self._connection.send((self._arguments(), getattr(config, "workerinput", None)))

    def _arguments(self) -> list[str]:
        given = [str(argument) for argument in self._config.invocation_params.args]
        manager, option = self._config.pluginmanager, self._config.option
        # What writes a file or a screen is this process's.
        added = ["--hpu", "--hpu-mode", self._mode]
        if manager.hasplugin("xdist"):
            added += ["-n0", "--dist=no"]
        if manager.hasplugin("_cov"):
            added.append("--no-cov")
        if option.basetemp:
            added.append(f"--basetemp={option.basetemp}-{self._mode}")
        end = given.index("--") if "--" in given else len(given)
        return given[:end] + added + given[end:]

    def run(self, item: pytest.Item, following: pytest.Item | None) -> Iterator[pytest.TestReport]:
        """Yield a test's reports as they come; with none to follow, the process then ends."""
        try:
            self._connection.send((item.nodeid, following.nodeid if following else None))
            while (answer := self._connection.recv())[0] != "done":
                if (report := self._take(item, *answer)) is not None:
                    yield report
            if following is None:
                self.finish()
                self.ended = True
        except (EOFError, OSError):
            self.ended = True
            how = ending(self._process.process)
            text = f"The process that ran this test in {self._mode} mode ended with {how}."
            yield _failed(item, text)
        except BaseException:
            # An interrupt: its fixtures end as well.
            self.ended = True
            self._process.stop(_PATIENCE)
            raise

    def finish(self) -> None:
        """Let the process take its fixtures down and end."""
        with suppress(OSError):
            self._connection.send(None)
        self._process.finish(_PATIENCE)

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.stop()

    def _take(self, item: pytest.Item, kind: str, content: Any) -> pytest.TestReport | None:
        hook = self._config.hook
        if kind == "report":
            report = hook.pytest_report_from_serializable(config=self._config, data=content)
            return report if isinstance(report, pytest.TestReport) else None
        if kind == "warning":
            message, when, nodeid, location = content
            hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": warnings.WarningMessage(*message),
                    "when": when,
                    "nodeid": nodeid,
                    "location": location,
                }
            )
            return None
        again = f"pytest --hpu --hpu-mode {self._mode} shows why."
        return _failed(
            item, f"There is no such test in {self._mode} mode: {again}\n{content}".rstrip()
        )


def _failed(item: pytest.Item, text: str) -> pytest.TestReport:
    keywords: dict[str, Any] = dict.fromkeys(item.keywords, 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, "failed", text, "call")


def _mode_of(item: pytest.Item) -> str | None:
    """Return the mode that a test asks for; None where either will do."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if parameters.get("hpu_mode") in MODES:
        return str(parameters["hpu_mode"])
    marked = _marked(item)
    return marked.pop() if len(marked) == 1 else None


def _marked(node: pytest.Item | Any) -> set[str]:
    """Return the modes that the test is marked with, or else the nearest of what it is in."""
    nearest, found = None, set()
    for owner, mark in node.iter_markers_with_node():
        if mark.name in MODES and nearest in (None, owner):
            nearest = owner
            found.add(mark.name)
    return found


def _on_several_cards(item: pytest.Item) -> bool:
    return "hpu_cards" in getattr(item, "fixturenames", ())
