"""What this process tells others: one file, there as long as there is something to tell."""

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
    """All that this process tells, and the lock over it. A fork begins with nothing told."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        self.lock = threading.Lock()
        self.session: Announcement | None = None
        self.fits: list[PublishedFit] = []
        self._ended = False
        self._tells = False

    def write(self) -> None:
        """Tell what is to be told now; the caller holds the lock."""
        if self._ended:
            return
        fit = self.fit()
        told_before, self._tells = self._tells, self.session is not None or fit is not None
        if not self._tells:
            files.remove()
            return
        if not told_before:
            files.remove_ended()
        told: dict[str, Any] = {
            "notebook": self.session and self.session.notebook,
            # A fit of another thread is work too, and so is one of a process without cells.
            "idle_since": self.session.idle_since if self.session and fit is None else None,
            "name": self.name,
            "fit": fit and fit.as_record(),
        }
        files.write(told)

    def fit(self) -> Fit | None:
        """Return the newest fit that has told something; the caller holds the lock."""
        told = [one for one in self.fits if one.told is not None]
        if not told:
            return None
        # Who has a name of its own works for another's notebook, and no page reaches it.
        can_be_asked = self.session is not None and self.session.stoppable and self.name is None
        fit = told[-1].told
        return fit and replace(fit, stoppable=told[-1].stop is not None and can_be_asked)

    def end(self) -> None:
        """Tell nothing any more, whatever other threads still do."""
        with self.lock:
            if self._tells:
                files.remove()
            self._ended = True


_here = _Process()
os.register_at_fork(after_in_child=_here.begin_anew)
atexit.register(_here.end)


def call_this_process(name: str) -> None:
    """Name this process for others: in what its session tells from its next word on."""
    _here.name = name


class Announcement:
    """The session of this process, told to others until it is withdrawn or the process ends.

    A later one takes the place of those before.

    Parameters
    ----------
    notebook : str or None
        Path of its notebook, where the front end has told.
    running : bool
        Whether a cell is running now.
    stoppable : bool
        Whether somebody answers who asks this process to stop its fit.
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
        """Say that a cell runs; a kernel's subshells may run several at once."""
        self._count(1)

    def end(self) -> None:
        """Say that a cell has ended."""
        self._count(-1)

    def withdraw(self) -> None:
        """Tell nothing of the session any more."""
        with _here.lock:
            # What a fork of this process does is none of the session's.
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
    """A fit of this process, told to others until it is withdrawn or the process ends.

    Parameters
    ----------
    stop : callable or None
        Asks the fit to end, from any thread; None where that cannot be asked from here.
    """

    def __init__(self, stop: Callable[[], None] | None = None) -> None:
        self.stop = stop
        self.told: Fit | None = None
        with _here.lock:
            _here.fits.append(self)

    def tell(self, fit: Fit) -> None:
        """Tell how far it is; nothing once it has been withdrawn, nor in a fork."""
        with _here.lock:
            if self in _here.fits:
                self.told = fit
                _here.write()

    def withdraw(self) -> None:
        """Tell nothing of it any more."""
        with _here.lock:
            if self in _here.fits:
                _here.fits.remove(self)
                _here.write()


def own_fit() -> Fit | None:
    """Return what this process tells of its fit; None where none runs."""
    with _here.lock:
        return _here.fit()


def stop_fit() -> Fit | None:
    """Ask the fit of this process to end, and return it; None where none runs that can be asked."""
    with _here.lock:
        asked = [one for one in _here.fits if one.stop is not None and one.told is not None]
    if not asked or (stop := asked[-1].stop) is None or (told := asked[-1].told) is None:
        return None
    stop()
    asked[-1].tell(replace(told, phase="stopping"))
    return told
