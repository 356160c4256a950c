"""A program that ends processes once the process that started it has ended or has been killed.

``python guard.py PARENT PID...`` reads from a pipe whose write end is held by its parent. The
operating system closes the pipe when the parent ends. Forks of the parent may keep it open, so the
guard also checks whether the parent still exists.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil

_SECONDS = 5.0
_CHECK_SECONDS = 1.0


class Guard:
    """Ends processes on this machine and their children as soon as this process has ended."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(os.getpid()), *map(str, pids)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the guard without ending the processes."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


def end(processes: Sequence[psutil.Process]) -> None:
    """Terminate processes, their children and sessions, and kill those that do not end in time.

    Processes that have already ended may be passed: children in the sessions that they started are
    still found.
    """
    every = _found(processes)
    for process in every:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(every, timeout=_SECONDS)
    for process in {*alive, *_found(processes)}:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _found(processes: Sequence[psutil.Process]) -> set[psutil.Process]:
    """Return the processes that exist, their children and the members of their sessions."""
    every = set()
    for process in processes:
        exists = process.is_running()
        if exists:
            every.add(process)
            with suppress(psutil.NoSuchProcess):
                every.update(process.children(recursive=True))
        # A session's ID is not assigned to a new process as long as the session has members.
        if exists or not psutil.pid_exists(process.pid):
            every.update(_session(process.pid))
    return every


def _session(leader: int) -> Iterator[psutil.Process]:
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) == leader:
                yield psutil.Process(pid)


def main(arguments: Sequence[str]) -> None:
    """Wait until the parent has ended, then end the given processes."""
    parent, *pids = map(int, arguments)
    # psutil detects whether a PID has since been reused by another process.
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin], [], [], _CHECK_SECONDS)
        if ready and not os.read(sys.stdin.fileno(), 1):
            break
    end(processes)


if __name__ == "__main__":
    main(sys.argv[1:])
