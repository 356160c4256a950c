"""The directory of the user's simulated cards, which other users cannot open."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hpu_magic import private_folder


def existing_directory() -> Path | None:
    """Return the directory of the cards, or None if no card has been acquired yet.

    Raises
    ------
    RuntimeError
        ``HPU_MAGIC_CARDS_DIR`` is a symbolic link, not a directory, or owned by another user.
    """
    if chosen := os.environ.get("HPU_MAGIC_CARDS_DIR"):
        _check(Path(chosen))
        return Path(chosen)
    return private_folder.found()


def directory() -> Path:
    """Return the directory of the cards. Create it for this user if it does not exist.

    Raises
    ------
    RuntimeError
        ``HPU_MAGIC_CARDS_DIR`` is unusable, or it is not set and no other directory is usable.
    """
    if chosen := os.environ.get("HPU_MAGIC_CARDS_DIR"):
        try:
            Path(chosen).mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            pass  # not a directory
        except OSError as failed:
            raise _unusable(chosen, f"cannot be created ({failed.strerror})") from None
        _check(Path(chosen))
        return Path(chosen)
    if made := private_folder.made():
        return made
    tried = ", ".join(map(str, private_folder.places()))
    raise RuntimeError(
        f"The simulated cards need a folder that only you can open, but none of {tried} is usable; "
        "set HPU_MAGIC_CARDS_DIR to your own directory."
    )


def _check(chosen: Path) -> None:
    """Raise an error if another user could control the directory, and therefore the cards."""
    try:
        status = os.lstat(chosen)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        problem = "is a symbolic link" if stat.S_ISLNK(status.st_mode) else "is not a directory"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to you ({os.geteuid()})"
    else:
        return
    raise _unusable(chosen, problem)


def _unusable(chosen: str | Path, problem: str) -> RuntimeError:
    return RuntimeError(
        f"The simulated cards cannot be stored in {chosen}, which {problem}; "
        "remove it or set HPU_MAGIC_CARDS_DIR to your own directory."
    )
