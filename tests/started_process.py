"""Processes that tests start and wait for."""

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def started_python(*arguments: str | bytes, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run Python until it prints a line, `printed`; a line of input can let it continue."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout is not None
    process.printed = process.stdout.readline()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.communicate("\n")


def started(code: str, **options: Any) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run code like `started_python`."""
    return started_python("-c", textwrap.dedent(code), **options)


def completed(
    *command: Any, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command until it exits and capture its output."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, **options)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for(condition: Callable[[], Any], seconds: float = 100) -> Any:
    """Return the first true value of a condition; fail after a number of seconds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "the condition was not true in time"
        time.sleep(0.05)
    return value
