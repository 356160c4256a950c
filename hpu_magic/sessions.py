"""What an interactive session tells other processes of its user: its notebook, and its idleness.

Each session has a file in a folder that only its user may enter. The file's name is the process
and the moment in which that started, so that another process with the same number finds nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from hpu_magic import private_folder

__all__ = ["Announcement", "Session", "activity", "call_this_process", "session"]

_FOLDER = "sessions"
_LARGEST = 16384  # bytes
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True)
class Session:
    """What a running session tells of itself.

    Attributes
    ----------
    notebook : str or None
        Path of its notebook; None in a terminal, and where the front end does not tell.
    idle : float
        Seconds since it last ran a cell; 0 while one runs.
    name : str or None
        What the process calls itself, where it has no notebook of its own.
    """

    notebook: str | None
    idle: float
    name: str | None = None


_name_here: str | None = None


def call_this_process(name: str) -> None:
    """Name this process for others: in what its session tells from its next word on."""
    global _name_here
    _name_here = name


def session(pid: int) -> Session | None:
    """Return what the session of process `pid` tells; None where it tells nothing.

    Another user's session can be read by root alone.
    """
    name = _name(pid)
    try:
        folder = private_folder.found(_owner(pid))
        if name is None or folder is None:
            return None
        told = json.loads(_content(folder / _FOLDER / name))
        notebook, since, called = told["notebook"], told["idle_since"], told.get("name")
    except (OSError, ValueError, LookupError, TypeError):  # it ended, is closed to us, or damaged
        return None
    if not isinstance(notebook, (str, type(None))) or not isinstance(
        since, (int, float, type(None))
    ):
        return None
    # Only a cell that runs is zero.
    idle = 0.0 if since is None else max(0.1, round(time.time() - since, 1))
    return Session(notebook, idle, called if isinstance(called, str) else None)


def activity(idle: float | None) -> str:
    """Write for how long a session has been idle: ``idle for 2 h``; empty where nobody knows."""
    if idle is None:
        return ""
    if idle == 0:
        return "busy"
    for unit, name in ((_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if idle >= unit:
            count = int(idle // unit)
            return f"idle for {count} {'day' if name == 'days' and count == 1 else name}"
    return "idle"


class Announcement:
    """The session of this process, told to others until it is withdrawn or the process ends.

    A disk that is full or a folder that cannot be had keeps others from being told, and nothing
    else.

    Parameters
    ----------
    notebook : str or None
        Path of its notebook, where the front end has told.
    running : bool
        Whether a cell is running now.
    """

    def __init__(self, notebook: str | None, *, running: bool) -> None:
        self._notebook = notebook
        self._running = int(running)
        self._writing = threading.Lock()
        self._pid = os.getpid()
        self._path: Path | None = None
        name, folder = _name(self._pid), private_folder.made()
        if name is not None and folder is not None:
            with contextlib.suppress(OSError):
                (folder / _FOLDER).mkdir(mode=0o700, exist_ok=True)
                _remove_ended(folder / _FOLDER)
                self._path = folder / _FOLDER / name
        self._write()
        atexit.register(self.withdraw)

    def begin(self) -> None:
        """Say that a cell runs; a kernel's subshells may run several at once."""
        with self._writing:
            self._running += 1
            self._write()

    def end(self) -> None:
        """Say that a cell has ended."""
        with self._writing:
            self._running = max(0, self._running - 1)
            self._write()

    def withdraw(self) -> None:
        """Tell nothing any more."""
        atexit.unregister(self.withdraw)
        # What a fork of this process does is none of the session's.
        if self._path is not None and os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._path = None

    def _write(self) -> None:
        if self._path is None or os.getpid() != self._pid:
            return
        since = None if self._running else time.time()
        told = {"notebook": self._notebook, "idle_since": since, "name": _name_here}
        coming = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):
            descriptor = os.open(
                coming, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(told, file)
            os.replace(coming, self._path)


def _name(pid: int) -> str | None:
    """Return the name of a process's file; None when the process has ended."""
    started = _started(pid)
    return None if started is None else f"{pid}-{started}"


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


def _remove_ended(folder: Path) -> None:
    """Remove what sessions left behind that were killed."""
    for entry in os.listdir(folder):
        pid, _, _ = entry.partition("-")
        if not pid.isdigit() or _name(int(pid)) != entry.removesuffix(".new"):
            with contextlib.suppress(FileNotFoundError):  # another session does the same
                os.unlink(folder / entry)
