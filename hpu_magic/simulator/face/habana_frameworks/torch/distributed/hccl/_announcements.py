"""The memory in which the ranks of one machine tell each other what they call."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from habana_frameworks.torch.distributed.hccl._members import Member

from hpu_magic.simulator.cards import place

_KEY = "announcements"


@contextlib.contextmanager
def shared(store: Any, rank: int, members: list[Member], size: int) -> Iterator[int]:
    """Yield a file that all ranks have open, or -1 where they cannot.

    Inside, the ranks have to connect: then all of them have it open, and its name goes.

    Parameters
    ----------
    store : torch.distributed.Store
        Reaches the other ranks of the group.
    rank : int
        Of this process, in the group.
    members : list of Member
        The group's processes; on several machines they share no memory.
    size : int
        Of the file, in bytes.
    """
    if len({member.host for member in members}) > 1:
        yield -1
        return
    path = ""
    if rank == 0:
        with contextlib.suppress(OSError):
            path = _made(size)
        store.set(_KEY, path)
    else:
        path = store.get(_KEY).decode()
    file = -1
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield file
    finally:
        if file >= 0:
            os.close(file)
        if rank == 0 and path:
            os.unlink(path)


def _made(size: int) -> str:
    file, path = tempfile.mkstemp(prefix="announcements-", dir=place.directory())
    try:
        os.truncate(file, size)
    finally:
        os.close(file)
    return path
