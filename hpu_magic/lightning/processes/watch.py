"""End all processes of a fit if one of them fails or hangs, and report which one it was.

A rank that fails prints its traceback. The other ranks then fail in their next collective and print
only the error message, because their tracebacks would not help. A rank that does not exit prints
its stack and is killed.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from hpu_magic.plain_text import printable

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]

STARTED_BY = "HPU_MAGIC_STARTED_BY"
"""Environment variable with the PID of the process that started this rank, and the file descriptor
of that process's pipe."""
_ENDED = b"."  # rank 0 writes this byte once for each other rank if it exits normally
_POLL = 0.2  # seconds between two checks of the processes
_COLLECTIVE = 15.0  # seconds after which a collective fails if a rank is missing
_END = 2.0  # seconds to wait for a process to exit
_STACK = 0.5  # seconds to wait for a process to print its stack


@contextmanager
def begun_by_this() -> Generator[int, None, None]:
    """Identify this process as the parent of the processes started inside the block.

    Yields the write end of a pipe, which is passed to `watch_from_parent`. From the pipe, the
    processes learn whether their parent exited normally. No cleanup is needed if the parent is
    killed.
    """
    reading, writing = os.pipe()
    os.environ[STARTED_BY] = f"{os.getpid()}:{reading}"
    try:
        yield writing
    finally:
        del os.environ[STARTED_BY]


def watch_from_parent(children: list[subprocess.Popen[bytes]], writing: int) -> None:
    """Make this process and the ranks that it started end together.

    `writing` is the write end of the pipe that `begun_by_this` yielded.
    """
    atexit.register(os.write, writing, _ENDED * len(children))
    watch = _Parent(list(children), sys.excepthook)
    sys.excepthook = watch.failed
    threading.Thread(target=watch.run, name="hpu_magic ranks", daemon=True).start()


def watch_from_child() -> None:
    """If this process was started as a rank, end it together with the process that started it."""
    parent, _, reading = os.environ.pop(STARTED_BY, "").partition(":")
    if not parent or (parent != str(os.getppid()) and _is_there(int(parent))):
        return
    try:
        pipe = os.open(f"/proc/{parent}/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        if _is_there(int(parent)):
            return  # this system has no /proc
        pipe = None
    sys.excepthook = functools.partial(_show, sys.excepthook)
    if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL and sys.__stderr__ is not None:
        faulthandler.register(signal.SIGUSR2, file=sys.__stderr__, all_threads=False)
    threading.Thread(
        target=_end_with, args=[int(parent), pipe], name="hpu_magic parent", daemon=True
    ).start()


class _Parent:
    """Rank 0, which started the other ranks on this machine."""

    def __init__(self, children: list[subprocess.Popen[bytes]], show: _Hook) -> None:
        self._children = children
        self._show = show
        self._leaving = threading.Event()
        self._others_are_late = False

    def run(self) -> None:
        """Wait for all ranks; if one fails and this process does not, end all processes."""
        while any(child.poll() is None for child in self._children):
            if any(child.returncode for child in self._children):
                break
            time.sleep(_POLL)
        failed = [(rank, child) for rank, child in enumerate(self._children, 1) if child.returncode]
        if not failed or self._leaving.wait(_COLLECTIVE):
            return
        rank, child = failed[0]
        _say(
            f"Rank {rank} (process {child.pid}) ended with {_code(child.returncode)}. Rank 0 "
            f"(process {os.getpid()}) is being killed; its stack:"
        )
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        traceback.print_stack(frame)
        self._end_children()
        os.kill(os.getpid(), signal.SIGKILL)

    def failed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Show an uncaught error, and end the other ranks when this process exits."""
        self._leaving.set()
        self._others_are_late = _is_of_others(kind)
        atexit.register(self._end_children)  # PyTorch delays a hook's output until the hook returns
        _show(self._show, kind, error, trace)

    def _end_children(self) -> None:
        until = time.monotonic() + _END
        while time.monotonic() < until and any(child.poll() is None for child in self._children):
            time.sleep(_POLL / 10)
        for rank, child in enumerate(self._children, 1):
            if child.poll() is not None:
                continue
            if self._others_are_late:
                _say(f"Rank {rank} (process {child.pid}) is being killed; its stack:")
                child.send_signal(signal.SIGUSR2)
                time.sleep(_STACK)
            child.kill()
            child.wait()


def _is_there(process: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _end_with(parent: int, pipe: int | None) -> None:
    """End this process soon after its parent is killed.

    A parent that exits normally writes to the pipe. The pipe is None if the parent exited before
    this process opened it.
    """
    while os.getppid() == parent:
        time.sleep(_POLL)
    if pipe is None or not _ended_normally(pipe):
        time.sleep(_COLLECTIVE)  # give a collective time to fail with a message
        os.kill(os.getpid(), signal.SIGKILL)


def _ended_normally(pipe: int) -> bool:
    try:
        return os.read(pipe, len(_ENDED)) == _ENDED
    except BlockingIOError:  # a fork of the parent still has the pipe's other end open
        return False


def _show(
    show: _Hook, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an error; if another rank caused it, show only the message."""
    if _is_of_others(kind):
        _say(f"{kind.__name__}: {error}")
    else:
        show(kind, error, trace)


def _is_of_others(kind: type[BaseException]) -> bool:
    """Return whether an error indicates that another rank is missing."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and issubclass(
        kind, distributed.DistBackendError | distributed.DistStoreError
    )


def _say(sentence: Any) -> None:
    print(printable(str(sentence), keep="\n\t"), file=sys.stderr, flush=True)


def _code(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
