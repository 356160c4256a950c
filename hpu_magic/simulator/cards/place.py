"""The folder of the user's simulated cards, out of the reach of other users."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hpu_magic import private_folder


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
    return private_folder.found()


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
    if made := private_folder.made():
        return made
    tried = ", ".join(map(str, private_folder.places()))
    raise RuntimeError(
        f"There is no place for the simulated cards that is yours alone (tried {tried}); "
        "set HPU_MAGIC_CARDS_DIR to a directory of your own."
    )


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
