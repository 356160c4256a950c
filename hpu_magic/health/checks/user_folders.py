"""Check the folders of the user: the home directory and the private folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hpu_magic import private_folder
from hpu_magic.health.finding import Finding
from hpu_magic.health.machine import Machine


def home(machine: Machine) -> Iterator[Finding]:
    """Check that the user's home directory is writable."""
    folder = machine.home
    fix = "Set HOME to a writable folder before Python starts."
    private = {"folder": str(folder)}
    if not folder.is_absolute():
        text = (
            "This user has no home directory, and HOME is not set: caches, logs and Jupyter's "
            "files cannot be stored."
        )
        yield Finding("home", "amber", text, fix, {"writable": False})
    elif folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        text = "The home directory {folder} is writable."
        yield Finding("home", "green", text, values={"writable": True}, private=private)
    else:
        text = (
            "The home directory {folder} is not writable by this user: caches, logs and Jupyter's "
            "files may not be stored."
        )
        yield Finding("home", "amber", text, fix, {"writable": False}, private)


def own_folder(machine: Machine) -> Iterator[Finding]:
    """Check the folder that this user's processes use to share data about cards and fits."""
    first, *others = private_folder.places()
    existing = private_folder.found()
    # The doctor must not change anything, so it does not create the folder.
    free = (place for place in (first, *others) if _can_be_made(place))
    folder = existing or next(free, None)
    if folder is None:
        text = (
            "Your private folder does not exist and cannot be created: kernels, the sidebar and "
            "`hpu-magic top` cannot share information about notebooks and fits."
        )
        fix = "Make /dev/shm or /tmp writable, or remove the file or folder {folder}."
        yield Finding("private folder", "red", text, fix, private={"folder": str(first)})
        return
    taken = first.exists() and not private_folder.is_private(first)
    private = {"folder": str(folder)}
    if not taken:
        text = "Only you can open the folder {folder}."
        if existing is None:
            text = "The first session will create {folder}, which only you can open."
        yield Finding("private folder", "green", text, values={"taken": False}, private=private)
        return
    yield Finding(
        "private folder",
        "amber",
        "Other users can open {first}, so {folder} is used instead: processes that are already "
        "running may still use {first}.",
        "Remove {first}, or let its owner remove it, and restart the kernels.",
        {"taken": True},
        private | {"first": str(first)},
    )


def _can_be_made(folder: Path) -> bool:
    return not os.path.lexists(folder) and os.access(folder.parent, os.W_OK | os.X_OK)
