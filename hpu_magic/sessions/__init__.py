"""What an interactive session tells other processes of its user: notebook, idleness, fit.

Each process that tells something has a file in a folder that only its user may enter. The file's
name is the process and the moment in which that started, so that another process with the same
number finds nothing.
"""

from __future__ import annotations

from hpu_magic.sessions.fit import Fit, Phase
from hpu_magic.sessions.reading import Session, activity, session
from hpu_magic.sessions.telling import (
    Announcement,
    PublishedFit,
    call_this_process,
    own_fit,
    stop_fit,
)

__all__ = [
    "Announcement",
    "Fit",
    "Phase",
    "PublishedFit",
    "Session",
    "activity",
    "call_this_process",
    "own_fit",
    "session",
    "stop_fit",
]
