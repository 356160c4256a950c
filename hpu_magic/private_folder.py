"""Files and folders that other users cannot open.

All processes of a user on a machine, such as a server, its kernels and a terminal, must find the
same folder, regardless of their environment variables. The choice therefore depends only on the
file system. In a world-writable folder, another user may have taken the name already, so there are
several candidates. An existing folder takes precedence over one that could be created, so that
another user cannot change the choice by removing a folder with a candidate's name.
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
    """Return whether `folder` is a real folder that only `user` (default: this user) can open."""
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
    """Yield the candidates for a user's folder; the last two cannot be created by other users."""
    user = os.geteuid() if user is None else user
    for parent in _OPEN_TO_ALL:
        yield parent / f"hpu_magic-{user}"
    yield _RUNTIME / str(user) / "hpu_magic"
    try:
        home = Path(pwd.getpwuid(user).pw_dir)
    except KeyError:  # in a container, the user may have no name
        return
    yield home / f".hpu_magic-{socket.gethostname()}"


def found(user: int | None = None) -> Path | None:
    """Return the existing folder of `user` (by default, this user) on this machine, if any."""
    return next((place for place in places(user) if is_private(place, user)), None)


def made() -> Path | None:
    """Return this user's folder, creating it if necessary, or None if no candidate is usable."""
    if existing := found():
        return existing
    for place in places():
        with contextlib.suppress(OSError):  # the folder exists, or its parent is not writable
            place.mkdir(mode=0o700)
        if is_private(place):
            return place
    return None


def writable_by_others(path: Path, *, allow_sticky: bool = False) -> str | None:
    """Return why another user could change the file or folder `path`, or None if nobody could.

    If `allow_sticky` is true, a folder with the sticky bit, such as ``/tmp``, is accepted, because
    users cannot remove each other's files there.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        return f"{path} cannot be examined ({error.strerror})"
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {status.st_uid}, neither to you nor to root"
    if allow_sticky and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"{path} can be written by all users"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status):
        return f"{path} can be written by the group {status.st_gid}"
    return None


def unsafe_folder(folder: Path) -> str | None:
    """Return why another user could replace a resolved folder or a parent, or None if nobody could.

    The search ends at the home folder or Python's folder, because anyone who can replace those can
    replace any program that this user runs.
    """
    ends = {Path(os.path.realpath(end)) for end in (os.path.expanduser("~"), sys.prefix)}
    for level, place in enumerate((folder, *folder.parents)):
        if why := writable_by_others(place, allow_sticky=level > 1):
            return why
        if place in ends:
            return None
    return None


def _is_own_group(status: os.stat_result) -> bool:
    """Return whether the owner is the only member of the group."""
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
