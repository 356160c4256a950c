"""POSIX record locks, and who holds one.

A record lock belongs to one process and ends with it however the process
ends, also while children that it forked live on. The price: closing *any*
descriptor of the file drops the process's lock, so its owner must open a lock
file once and keep it open.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from dataclasses import dataclass

if sys.platform == "darwin":
    _FLOCK = struct.Struct("@qqihh")
    _FIELDS = ("start", "len", "pid", "type", "whence")
else:
    _FLOCK = struct.Struct("@hhqqi4x")
    _FIELDS = ("type", "whence", "start", "len", "pid")


@dataclass(frozen=True)
class LockHolder:
    """A process that holds a lock; ``pid`` is 0 when it lives in another PID namespace."""

    pid: int


def lock_or_holder(descriptor: int) -> LockHolder | None:
    """Take the file's write lock for this process, or tell which process has it.

    Returns
    -------
    LockHolder or None
        None when this process now has the lock.
    """
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            # No holder any more: it ended between the two questions, so ask again.
            if holder := lock_holder(descriptor):
                return holder
        else:
            return None


def lock_holder(descriptor: int) -> LockHolder | None:
    """Tell which *other* process holds the file's lock, without taking it."""
    question = dict.fromkeys(_FIELDS, 0) | {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET}
    answer = fcntl.fcntl(
        descriptor, fcntl.F_GETLK, _FLOCK.pack(*(question[field] for field in _FIELDS))
    )
    found = dict(zip(_FIELDS, _FLOCK.unpack(answer), strict=True))
    return None if found["type"] == fcntl.F_UNLCK else LockHolder(max(found["pid"], 0))
