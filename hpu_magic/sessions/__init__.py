"""Share the state of interactive sessions with other processes of the same user.

The state includes the notebook, the idle time and the fit.

Each process publishes its state in a file, in a folder that only its user can open. The file name
contains the PID and the start time of the process, so it cannot be confused with the file of a
later process that has the same PID.
"""

from __future__ import annotations

from hpu_magic.sessions.activity import activity
from hpu_magic.sessions.fit import Fit, Phase
from hpu_magic.sessions.reading import SessionState, session
from hpu_magic.sessions.this_process import (
    Announcement,
    PublishedFit,
    name_this_process,
    own_fit,
    stop_fit,
)

__all__ = [
    "Announcement",
    "Fit",
    "Phase",
    "PublishedFit",
    "SessionState",
    "activity",
    "name_this_process",
    "own_fit",
    "session",
    "stop_fit",
]
