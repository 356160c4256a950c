"""Describe the activity of a session."""

from __future__ import annotations

from hpu_magic.plain_text import printable
from hpu_magic.sessions.fit import Fit

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def activity(idle: float | None, fit: Fit | None = None) -> str:
    """Describe a session's activity: ``idle for 2 h``, ``busy``, ``fit: 42 %, 40 s left``.

    If the activity is unknown, the description is empty.
    """
    if fit is not None:
        return printable(f"fit: {fit.brief()}")
    if idle is None:
        return ""
    if idle == 0:
        return "busy"
    for unit, name in ((_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if idle >= unit:
            count = int(idle // unit)
            return f"idle for {count} {'day' if name == 'days' and count == 1 else name}"
    return "idle"
