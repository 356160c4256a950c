"""Read, write and remove session files."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpu_magic import private_folder

_FOLDER = "sessions"
_LARGEST = 16384  # bytes


def read(pid: int) -> Any:
    """Return the contents of the session file of the process `pid`.

    Raises
    ------
    OSError
        The session file does not exist, or this user cannot read it.
    ValueError
        The session file is damaged or is not a regular file.
    """
    file_name = name(pid)
    folder = private_folder.found(_owner(pid))
    if file_name is None or folder is None:
        raise FileNotFoundError(f"Process {pid} has no session file.")
    try:
        return json.loads(_content(folder / _FOLDER / file_name), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError(f"The session file of process {pid} is nested too deeply.") from error


def write(state: Mapping[str, Any]) -> None:
    """Write this process's session file atomically, so that no process reads a partial file.

    If the file cannot be written, for example because the disk is full, the session continues
    without it.
    """
    path = _own_path(private_folder.made())
    if path is None:
        return
    temporary = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(state, file, allow_nan=False)
        os.replace(temporary, path)


def remove() -> None:
    """Remove this process's session file."""
    if path := _own_path(private_folder.found()):
        with contextlib.suppress(OSError):
            path.unlink()


def remove_ended() -> None:
    """Remove the session files of processes that were killed."""
    folder = private_folder.found()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder / _FOLDER):
            pid, _, _ = entry.partition("-")
            if not pid.isdigit() or name(int(pid)) != entry.removesuffix(".new"):
                with contextlib.suppress(
                    FileNotFoundError
                ):  # another session may have removed the file
                    os.unlink(folder / _FOLDER / entry)


def name(pid: int) -> str | None:
    """Return the name of a process's session file; None if the process has ended."""
    started = _started(pid)
    return None if started is None else f"{pid}-{started}"


@lru_cache(maxsize=1)
def _own_name(pid: int) -> str | None:
    return name(pid)


def _own_path(folder: Path | None) -> Path | None:
    file_name = _own_name(os.getpid())
    return None if file_name is None or folder is None else folder / _FOLDER / file_name


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON.")


def _started(pid: int) -> str | None:
    try:
        # The start time is in clock ticks since boot. The program name, which is in parentheses,
        # may contain spaces.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None if os.path.exists("/proc/self/stat") else _started_without_proc(pid)


def _started_without_proc(pid: int) -> str | None:
    import psutil

    # On Linux, psutil's start time depends on the system clock, which can be adjusted, so this
    # function is not used there.
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _owner(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid if os.path.exists("/proc/self") else os.geteuid()


def _content(path: Path) -> bytes:
    """Read a file; raise an error if it is not a regular file but, for example, a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is not a regular file.")
        return os.read(descriptor, _LARGEST)
    finally:
        os.close(descriptor)
