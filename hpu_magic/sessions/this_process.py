"""Publish the state of this process in a file while it has a session or a fit."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hpu_magic.sessions import files
from hpu_magic.sessions.fit import Fit


class _Process:
    """The published state of this process; a forked process starts without any state."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.reset()

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.session: Announcement | None = None
        self.fits: list[PublishedFit] = []
        self._ended = False
        self._has_file = False

    def write(self) -> None:
        """Write the session file, or remove it if it is not needed; requires the lock."""
        if self._ended:
            return
        fit = self.fit()
        had_file, self._has_file = self._has_file, self.session is not None or fit is not None
        if not self._has_file:
            files.remove()
            return
        if not had_file:
            files.remove_ended()
        state: dict[str, Any] = {
            "notebook": self.session and self.session.notebook,
            # A fit counts as activity even if it runs in another thread while no cell is running.
            "idle_since": self.session.idle_since if self.session and fit is None else None,
            "name": self.name,
            "fit": fit and fit.as_record(),
        }
        files.write(state)

    def fit(self) -> Fit | None:
        """Return the latest published state of a fit; the caller must hold the lock."""
        published = [fit for fit in self.fits if fit.state is not None]
        if not published:
            return None
        # Only a worker of another process has a name, and pages cannot stop the fits of workers.
        reachable = self.session is not None and self.session.stoppable and self.name is None
        state = published[-1].state
        return state and replace(state, stoppable=published[-1].stop is not None and reachable)

    def end(self) -> None:
        """Remove the session file, and ignore any later changes by other threads."""
        with self.lock:
            if self._has_file:
                files.remove()
            self._ended = True


_here = _Process()
os.register_at_fork(after_in_child=_here.reset)
atexit.register(_here.end)


def name_this_process(name: str) -> None:
    """Set the name under which other processes show this process after its next update."""
    _here.name = name


class Announcement:
    """The session of this process, which is published until it is withdrawn or the process ends.

    A new announcement replaces the previous one. `notebook` is the notebook's path as reported by
    the front end, and `stoppable` is whether this process handles requests to stop its fit.
    """

    def __init__(self, notebook: str | None, *, running: bool, stoppable: bool = False) -> None:
        self.notebook = notebook
        self.stoppable = stoppable
        self.idle_since: float | None = None if running else time.time()
        self._running = int(running)
        with _here.lock:
            _here.session = self
            _here.write()

    def begin(self) -> None:
        """Publish that a cell has started; kernels with subshells can run several cells at once."""
        self._count(1)

    def end(self) -> None:
        """Publish that a cell has ended."""
        self._count(-1)

    def withdraw(self) -> None:
        """Stop publishing the session."""
        with _here.lock:
            # In a forked process, there is no session.
            if _here.session is self:
                _here.session = None
                _here.write()

    def _count(self, change: int) -> None:
        with _here.lock:
            self._running = max(0, self._running + change)
            self.idle_since = None if self._running else time.time()
            if _here.session is self:
                _here.write()


class PublishedFit:
    """A fit of this process, which is published until it is withdrawn or the process ends.

    `stop` ends the fit and can be called from any thread; it is None if the fit cannot be stopped.
    """

    def __init__(self, stop: Callable[[], None] | None = None) -> None:
        self.stop = stop
        self.state: Fit | None = None
        with _here.lock:
            _here.fits.append(self)

    def update(self, state: Fit) -> None:
        """Publish a new state, unless the fit was withdrawn or belongs to the parent process."""
        with _here.lock:
            if self in _here.fits:
                self.state = state
                _here.write()

    def withdraw(self) -> None:
        """Stop publishing the fit."""
        with _here.lock:
            if self in _here.fits:
                _here.fits.remove(self)
                _here.write()


def own_fit() -> Fit | None:
    """Return the published state of this process's fit, or None if there is no fit."""
    with _here.lock:
        return _here.fit()


def stop_fit() -> Fit | None:
    """Stop this process's fit and return its state; return None if no fit can be stopped."""
    with _here.lock:
        stoppable = [fit for fit in _here.fits if fit.stop is not None and fit.state is not None]
    if not stoppable:
        return None
    fit = stoppable[-1]
    if (stop := fit.stop) is None or (state := fit.state) is None:
        return None
    stop()
    fit.update(replace(state, phase="stopping"))
    return state
