"""A program that ends processes once the process that started it has ended or has been killed.

``python guard.py PARENT PID...`` reads from a pipe whose write end is held by its parent. The
operating system closes that end when the process ends. Forks of the process may keep it open, so
the guard also checks whether its parent still exists.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
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
    """Terminate processes and their children, and kill those that do not end in time."""
    every = list(processes)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            every += process.children(recursive=True)
    for process in every:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(every, timeout=_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()


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
