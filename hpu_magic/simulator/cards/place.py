"""The folder of the user's simulated cards, out of the reach of other users.

All processes of a user on a machine must find the same folder, whatever their environment: a
server that the system started, its kernels, a terminal. It is therefore chosen from what lies in
the file system alone. Somebody else may have taken a name in a folder that is open to all; the
next place does then. A folder that is there already comes before one that could be made, so that
nobody moves the cards by giving a name back.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from ..private_folder import is_private

_OPEN_TO_ALL = (Path("/dev/shm"), Path("/tmp"))
_RUNTIME = Path("/run/user")


def existing_directory() -> Path | None:
    """Return the folder of the cards, or None before the first one is acquired.

    Raises
    ------
    RuntimeError
        ``HPU_MAGIC_CARDS_DIR`` is a symbolic link, no folder or somebody else's.
    """
    if chosen := os.environ.get("HPU_MAGIC_CARDS_DIR"):
        _check(Path(chosen))
        return Path(chosen)
    return next(filter(is_private, _places()), None)


def directory() -> Path:
    """Return the folder of the cards, made for this user alone where it is missing.

    Raises
    ------
    RuntimeError
        ``HPU_MAGIC_CARDS_DIR`` cannot be used, or it is not set and there is no other place.
    """
    if chosen := os.environ.get("HPU_MAGIC_CARDS_DIR"):
        Path(chosen).mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(Path(chosen))
        return Path(chosen)
    if found := existing_directory():
        return found
    for place in _places():
        with contextlib.suppress(OSError):  # taken, or in a folder that cannot be written
            place.mkdir(mode=0o700)
        if is_private(place):
            return place
    tried = ", ".join(map(str, _places()))
    raise RuntimeError(
        f"There is no place for the simulated cards that is yours alone (tried {tried}); "
        "set HPU_MAGIC_CARDS_DIR to a directory of your own."
    )


def _places() -> Iterator[Path]:
    """Places in the order in which they are tried; nobody else can take the last two."""
    user = os.geteuid()
    for parent in _OPEN_TO_ALL:
        yield parent / f"hpu_magic-{user}"
    yield _RUNTIME / str(user) / "hpu_magic"
    try:
        home = Path(pwd.getpwuid(user).pw_dir)
    except KeyError:  # a container may run under a number without a name
        return
    yield home / f".hpu_magic-cards-{socket.gethostname()}"


def _check(chosen: Path) -> None:
    """Refuse a directory through which somebody else could decide who owns a card."""
    try:
        status = os.lstat(chosen)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        wrong = "is not a directory" if not stat.S_ISLNK(status.st_mode) else "is a symbolic link"
    elif status.st_uid != os.geteuid():
        wrong = f"belongs to user {status.st_uid}, not to you ({os.geteuid()})"
    else:
        return
    raise RuntimeError(
        f"The simulated cards cannot be kept in {chosen}, which {wrong}; "
        "remove it or set HPU_MAGIC_CARDS_DIR to a directory of your own."
    )
