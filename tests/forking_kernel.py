"""Run a kernel whose ipyparallel engines are forks.

The first argument is the descriptor of a socket of `ForkedPython`.
"""

import runpy
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from ipyparallel.cluster import launcher

sys.path.append(str(Path(__file__).parent))
from forked_python import Fork, ForkedPython

python = ForkedPython(requests=socket.socket(fileno=int(sys.argv[1])))
forks: dict[int, Fork] = {}


class Engine(psutil.Process):
    """The process of an engine, whose exit code is known although it is not a child."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code."""
        try:
            return forks[self.pid].wait(timeout)
        except subprocess.TimeoutExpired:
            raise psutil.TimeoutExpired(timeout, self.pid) from None


def start(command: Sequence[str], *, stdin: Any, stderr: Any, **options: Any) -> Any:
    """Start a process of ipyparallel, as a fork if it is an engine."""
    if "ipyparallel.engine" not in command:
        return subprocess.Popen(command, stdin=stdin, stderr=stderr, **options)
    fork = python.popen(command, stderr=options["stdout"], hides_torch=True, **options)
    forks[fork.pid] = fork
    return fork


def process(pid: int) -> psutil.Process:
    """Return the process that `start` has started."""
    return Engine(pid) if pid in forks else psutil.Process(pid)


launcher.Popen = start
launcher.psutil = SimpleNamespace(**vars(psutil) | {"Process": process})
sys.argv = sys.argv[3:]  # without "-m"
sys.path[0] = str(Path.cwd())
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
