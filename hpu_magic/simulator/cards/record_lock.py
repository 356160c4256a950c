"""POSIX record locks and their holders.

A record lock belongs to a single process. The system releases it when the process ends for any
reason, even if forked children of the process continue to run. Closing *any* descriptor of the file
also releases the lock, so the owner must open a lock file only once and keep it open.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

if sys.platform == "darwin":
    _FLOCK = struct.Struct("@qqihh")
    _FIELDS = ("start", "len", "pid", "type", "whence")
else:
    _FLOCK = struct.Struct("@hhqqi4x")
    _FIELDS = ("type", "whence", "start", "len", "pid")


def lock_or_holder(descriptor: int) -> int | None:
    """Acquire the file's write lock for this process, or return the pid of its holder.

    Returns
    -------
    int or None
        None if this process now holds the lock; 0 if the holder is in another PID namespace.
    """
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            # If no holder is found, the lock was released between the two calls, so try again.
            if (holder := lock_holder(descriptor)) is not None:
                return holder
        else:
            return None


def lock_holder(descriptor: int) -> int | None:
    """Return the pid of *another* process that holds the file's lock, without acquiring it."""
    query = dict.fromkeys(_FIELDS, 0) | {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET}
    reply = fcntl.fcntl(
        descriptor, fcntl.F_GETLK, _FLOCK.pack(*(query[field] for field in _FIELDS))
    )
    lock = dict(zip(_FIELDS, _FLOCK.unpack(reply), strict=True))
    return None if lock["type"] == fcntl.F_UNLCK else max(lock["pid"], 0)
