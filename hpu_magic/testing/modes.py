"""Run tests of both modes in one session. Tests of the other mode run in a separate process.

A process can only have one mode. Therefore, a second pytest process collects the same tests and
runs those of the other mode, and this session shows their reports. The second process holds a card
until it ends, so its tests run first, and it ends before this process acquires a card.
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
"""True in the process that runs the tests of the other mode."""
_PATIENCE = 30.0  # timeout in seconds for tearing down the last fixtures


class Modes:
    """Assigns each test to one of the two processes."""

    def __init__(self, config: pytest.Config, mode: str) -> None:
        self.mode = mode
        self._config = config
        self._other: OtherMode | None = None
        # Copy the environment and the path before any test runs, because tests may change them.
        self._environment, self._path = dict(os.environ), list(sys.path)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test in both modes if it has the markers of both."""
        if len(_marked(metafunc.definition)) > 1 and "hpu_mode" not in metafunc.fixturenames:
            metafunc.fixturenames.append("hpu_mode")
        if len(_marked(metafunc.definition)) > 1:
            metafunc.parametrize("hpu_mode", MODES)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Move tests of the other process, and tests that use multiple cards, to the front.

        These tests must run before this process acquires a card, because they need cards as well.
        """
        items.sort(key=lambda item: (not self._elsewhere(item), not _on_several_cards(item)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Run a test of the other mode in the other process, and report it in this session."""
        if not self._elsewhere(item):
            return None
        continues = nextitem is not None and self._elsewhere(nextitem)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, nextitem if continues else None):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # Tear down the fixtures of earlier tests that the next test does not use.
        item.session._setupstate.teardown_exact(nextitem)
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> Any:
        """Disable pytest-timeout here; the process that runs the test applies it."""
        return True if self._elsewhere(item) else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> Any:
        """Do nothing, because this process has not set a timer."""
        return True if self._elsewhere(item) else None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """End the other process if the session stops early, for example because of ``-x``."""
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
                self._other.kill()
                self._other = None


class OtherMode:
    """A second pytest process in the other mode, which runs tests on request."""

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
        arguments = [str(argument) for argument in self._config.invocation_params.args]
        manager, option = self._config.pluginmanager, self._config.option
        # Only this process may write to files and to the terminal.
        added = ["--hpu", "--hpu-mode", self._mode]
        if manager.hasplugin("xdist"):
            added += ["-n0", "--dist=no"]
        if manager.hasplugin("_cov"):
            added.append("--no-cov")
        if option.basetemp:
            added.append(f"--basetemp={option.basetemp}-{self._mode}")
        end = arguments.index("--") if "--" in arguments else len(arguments)
        return arguments[:end] + added + arguments[end:]

    def run(self, item: pytest.Item, following: pytest.Item | None) -> Iterator[pytest.TestReport]:
        """Run a test and yield its reports. End the process if no other test follows."""
        try:
            self._connection.send((item.nodeid, following.nodeid if following else None))
            while (answer := self._connection.recv())[0] != "done":
                if (report := self._report(item, *answer)) is not None:
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
            # After an interrupt, also tear down the fixtures of the other process.
            self.ended = True
            self._process.stop(_PATIENCE)
            raise

    def finish(self) -> None:
        """Let the process tear down its fixtures and exit."""
        with suppress(OSError):
            self._connection.send(None)
        self._process.finish(_PATIENCE)

    def kill(self) -> None:
        """Kill the process."""
        self._process.stop()

    def _report(self, item: pytest.Item, kind: str, content: Any) -> pytest.TestReport | None:
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
        return _failed(
            item,
            f"This test does not exist in {self._mode} mode; run pytest --hpu --hpu-mode "
            f"{self._mode} to find the cause.\n{content}".rstrip(),
        )


def _failed(item: pytest.Item, text: str) -> pytest.TestReport:
    keywords: dict[str, Any] = dict.fromkeys(item.keywords, 1)
    return pytest.TestReport(item.nodeid, item.location, keywords, "failed", text, "call")


def _mode_of(item: pytest.Item) -> str | None:
    """Return the mode that a test requires, or None if it can run in either mode."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if parameters.get("hpu_mode") in MODES:
        return str(parameters["hpu_mode"])
    marked = _marked(item)
    return marked.pop() if len(marked) == 1 else None


def _marked(node: pytest.Item | Any) -> set[str]:
    """Return the modes in a test's own markers, or in those of the nearest class or module."""
    nearest, modes = None, set()
    for owner, mark in node.iter_markers_with_node():
        if mark.name in MODES and nearest in (None, owner):
            nearest = owner
            modes.add(mark.name)
    return modes


def _on_several_cards(item: pytest.Item) -> bool:
    return "hpu_cards" in getattr(item, "fixturenames", ())
