"""Read the published state of another process."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hpu_magic.sessions import files
from hpu_magic.sessions.fit import Fit, is_number


@dataclass(frozen=True)
class SessionState:
    """The published state of a running session."""

    notebook: (
        str | None
    )  # path of the notebook; None in a terminal or if the front end does not report it
    idle: float  # seconds since the last cell ended; 0 while a cell or a fit is running
    name: str | None = None  # name of a process that has no notebook of its own, such as a worker
    fit: Fit | None = None


def session(pid: int) -> SessionState | None:
    """Return the state of the session in the process `pid`, or None if it does not publish any.

    Only root can read the sessions of other users.
    """
    try:
        state = files.read(pid)
        notebook, since, name = state["notebook"], state["idle_since"], state.get("name")
        fit = Fit.from_record(state.get("fit"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # the process has ended, or its session file is unreadable or damaged
    if not (isinstance(notebook, (str, type(None))) and (since is None or is_number(since))):
        return None
    # Zero would mean that a cell is running.
    idle = 0.0 if since is None else max(0.1, round(time.time() - since, 1))
    return SessionState(notebook, idle, name if isinstance(name, str) else None, fit)
