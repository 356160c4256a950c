"""The files of sessions: what they are called, and how they are read, written and removed."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpu_magic import private_folder

_FOLDER = "sessions"
_LARGEST = 16384  # bytes


def read(pid: int) -> Any:
    """Return what the file of process `pid` holds.

    Raises
    ------
    OSError
        There is none, or it is closed to this user.
    ValueError
        It is damaged, or no file.
    """
    called = name(pid)
    folder = private_folder.found(_owner(pid))
    if called is None or folder is None:
        raise FileNotFoundError(f"process {pid} tells nothing")
    try:
        return json.loads(_content(folder / _FOLDER / called), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError(f"the file of process {pid} is nested too deeply") from error


def write(told: Mapping[str, Any]) -> None:
    """Tell what others are to know of this process; by a rename, so that nobody reads half of it.

    A disk that is full or a folder that cannot be had keeps others from being told, and nothing
    else.
    """
    path = _own_path(private_folder.made())
    if path is None:
        return
    coming = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(
            coming, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(told, file, allow_nan=False)
        os.replace(coming, path)


def remove() -> None:
    """Remove the file of this process."""
    if path := _own_path(private_folder.found()):
        with contextlib.suppress(OSError):
            path.unlink()


def remove_ended() -> None:
    """Remove what processes left behind that were killed."""
    folder = private_folder.found()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder / _FOLDER):
            pid, _, _ = entry.partition("-")
            if not pid.isdigit() or name(int(pid)) != entry.removesuffix(".new"):
                with contextlib.suppress(FileNotFoundError):  # another session does the same
                    os.unlink(folder / _FOLDER / entry)


def name(pid: int) -> str | None:
    """Return the name of a process's file; None when the process has ended."""
    started = _started(pid)
    return None if started is None else f"{pid}-{started}"


def _own_path(folder: Path | None) -> Path | None:
    called = name(os.getpid())
    return None if called is None or folder is None else folder / _FOLDER / called


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _started(pid: int) -> str | None:
    try:
        # In ticks since the machine started; the fields before it follow the name in parentheses.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None if os.path.exists("/proc/self/stat") else _started_without_proc(pid)


def _started_without_proc(pid: int) -> str | None:
    import subprocess  # loading the extension does not wait for it

    question = ["ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(question, capture_output=True, text=True, check=False).stdout
    return "-".join(answer.replace(":", "-").split()) or None


def _owner(pid: int) -> int:
    return os.stat(f"/proc/{pid}").st_uid if os.path.exists("/proc/self") else os.geteuid()


def _content(path: Path) -> bytes:
    """Read a file that its owner may have exchanged for anything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is no file")
        return os.read(descriptor, _LARGEST)
    finally:
        os.close(descriptor)
