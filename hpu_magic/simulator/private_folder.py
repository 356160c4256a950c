"""Whether files and folders are this user's own, out of the reach of other users."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def is_private(folder: Path) -> bool:
    """Tell whether `folder` is a real folder of this user that nobody else may enter or write."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )


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
    ends = {Path(os.path.realpath(end)) for end in (Path("~").expanduser(), Path(sys.prefix))}
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
