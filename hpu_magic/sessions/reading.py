"""What another process tells of itself."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hpu_magic.plain_text import printable
from hpu_magic.sessions import files
from hpu_magic.sessions.fit import Fit, is_number

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True)
class Session:
    """What a running session tells of itself.

    Attributes
    ----------
    notebook : str or None
        Path of its notebook; None in a terminal, and where the front end does not tell.
    idle : float
        Seconds since it last ran a cell; 0 while one runs, or a fit.
    name : str or None
        What the process calls itself, where it has no notebook of its own.
    fit : Fit or None
        The fit that runs in it.
    """

    notebook: str | None
    idle: float
    name: str | None = None
    fit: Fit | None = None


def session(pid: int) -> Session | None:
    """Return what the session of process `pid` tells; None where it tells nothing.

    Another user's session can be read by root alone.
    """
    try:
        told = files.read(pid)
        notebook, since, called = told["notebook"], told["idle_since"], told.get("name")
        fit = Fit.from_record(told.get("fit"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # it ended, is closed to us, or damaged
    if not (isinstance(notebook, (str, type(None))) and (since is None or is_number(since))):
        return None
    # Only a cell that runs is zero.
    idle = 0.0 if since is None else max(0.1, round(time.time() - since, 1))
    return Session(notebook, idle, called if isinstance(called, str) else None, fit)


def activity(idle: float | None, fit: Fit | None = None) -> str:
    """Write what a session does, or for how long it has been idle; empty where nobody knows.

    For example ``idle for 2 h``, ``busy``, ``in a fit: 42 %, 40 s left``.
    """
    if fit is not None:
        return printable(f"in a fit: {fit.brief()}")
    if idle is None:
        return ""
    if idle == 0:
        return "busy"
    for unit, name in ((_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if idle >= unit:
            count = int(idle // unit)
            return f"idle for {count} {'day' if name == 'days' and count == 1 else name}"
    return "idle"
