"""Files and folders that are one user's own, out of the reach of other users.

All processes of a user on a machine must find the same folder, whatever their environment: a
server that the system started, its kernels, a terminal. It is therefore chosen from what lies in
the file system alone. Somebody else may have taken a name in a folder that is open to all; the
next place does then. A folder that is there already comes before one that could be made, so that
nobody moves it by giving a name back.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

_OPEN_TO_ALL = (Path("/dev/shm"), Path("/tmp"))
_RUNTIME = Path("/run/user")


def is_private(folder: Path, user: int | None = None) -> bool:
    """Tell whether a folder is real, of `user` (by default this one), and closed to all others."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == (os.geteuid() if user is None else user)
        and not stat.S_IMODE(status.st_mode) & 0o077
    )


def places(user: int | None = None) -> Iterator[Path]:
    """Yield where a user's folder may be, in the order of trial; nobody can take the last two."""
    user = os.geteuid() if user is None else user
    for parent in _OPEN_TO_ALL:
        yield parent / f"hpu_magic-{user}"
    yield _RUNTIME / str(user) / "hpu_magic"
    try:
        home = Path(pwd.getpwuid(user).pw_dir)
    except KeyError:  # a container may run under a number without a name
        return
    yield home / f".hpu_magic-{socket.gethostname()}"


def found(user: int | None = None) -> Path | None:
    """Return the folder of `user` (by default this one) on this machine, if there is one."""
    return next((place for place in places(user) if is_private(place, user)), None)


def made() -> Path | None:
    """Return this user's folder on this machine, made where it is missing; None where none can."""
    if there := found():
        return there
    for place in places():
        with contextlib.suppress(OSError):  # taken, or in a folder that cannot be written
            place.mkdir(mode=0o700)
        if is_private(place):
            return place
    return None


def writable_by_others(path: Path, *, sticky_will_do: bool = False) -> str | None:
    """Say how somebody else could change what lies at `path`, or None.

    Parameters
    ----------
    sticky_will_do : bool
        Whether a folder may be open to all if, as in ``/tmp``, none may remove another's files.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        return f"{path} cannot be examined ({error.strerror})"
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {status.st_uid}, neither to you nor to root"
    if sticky_will_do and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"{path} can be written by all users"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status):
        return f"{path} can be written by the group {status.st_gid}"
    return None


def distrust_folders(folder: Path) -> str | None:
    """Say which of a resolved folder and those above it others could exchange, or None.

    The home and Python's own folder end the way up: who can exchange these, can do it with any
    program of the user.
    """
    ends = {Path(os.path.realpath(end)) for end in (os.path.expanduser("~"), sys.prefix)}
    for level, place in enumerate((folder, *folder.parents)):
        if why := writable_by_others(place, sticky_will_do=level > 1):
            return why
        if place in ends:
            return None
    return None


def _is_own_group(status: os.stat_result) -> bool:
    """Whether the group is that of its one user, as many systems give to each."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return (
        owner.pw_gid == group.gr_gid
        and owner.pw_name == group.gr_name
        and not set(group.gr_mem) - {owner.pw_name}
    )
