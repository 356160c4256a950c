"""A common end of the processes of a fit: if one fails or hangs, a message names it, and all end.

A rank that fails prints its traceback. The others fail in their next collective. A traceback of
that error does not help, so they print only its message. A rank that does not end prints the place
where it is, and is killed.
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
"""Environment variable: the process that started this one as a rank, and its end of a pipe."""
_ENDED = b"."  # rank 0 writes this for each other rank when it ends normally
_LOOKS = 0.2  # seconds between two checks of the processes
_LEAVES = 15.0  # seconds within which a collective fails if a rank is missing
_ENDS = 2.0  # seconds for a process to end on its own
_TELLS = 0.5  # seconds for a process to print its stack


@contextmanager
def begun_by_this() -> Generator[int, None, None]:
    """Identify this process as the parent of processes that are started inside the block.

    They read from a pipe of this process whether it ended normally. A pipe needs no cleanup after a
    kill.

    Yields
    ------
    int
        The writing end of the pipe, for `watch_from_parent`.
    """
    reading, writing = os.pipe()
    os.environ[STARTED_BY] = f"{os.getpid()}:{reading}"
    try:
        yield writing
    finally:
        del os.environ[STARTED_BY]


def watch_from_parent(children: list[subprocess.Popen[bytes]], writing: int) -> None:
    """Make this process and the ranks that it has started end together.

    Parameters
    ----------
    children
        The processes.
    writing
        The end of the pipe that `begun_by_this` yields.
    """
    atexit.register(os.write, writing, _ENDED * len(children))
    watch = _Parent(list(children), sys.excepthook)
    sys.excepthook = watch.failed
    threading.Thread(target=watch.run, name="hpu_magic ranks", daemon=True).start()


def watch_from_child() -> None:
    """Make this process end with the process that started it as a rank, if any."""
    parent, _, reading = os.environ.pop(STARTED_BY, "").partition(":")
    if not parent or (parent != str(os.getppid()) and _is_there(int(parent))):
        return
    try:
        pipe = os.open(f"/proc/{parent}/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        if _is_there(int(parent)):
            return  # a system without /proc
        pipe = None
    sys.excepthook = functools.partial(_show, sys.excepthook)
    if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL and sys.__stderr__ is not None:
        faulthandler.register(signal.SIGUSR2, file=sys.__stderr__, all_threads=False)
    threading.Thread(
        target=_end_with, args=[int(parent), pipe], name="hpu_magic parent", daemon=True
    ).start()


class _Parent:
    """Rank 0, which has started the other ranks of this machine."""

    def __init__(self, children: list[subprocess.Popen[bytes]], show: _Hook) -> None:
        self._children = children
        self._show = show
        self._leaving = threading.Event()
        self._others_are_late = False

    def run(self) -> None:
        """Wait until all have ended, or one has failed and this process does not end."""
        while any(child.poll() is None for child in self._children):
            if any(child.returncode for child in self._children):
                break
            time.sleep(_LOOKS)
        failed = [(rank, child) for rank, child in enumerate(self._children, 1) if child.returncode]
        if not failed or self._leaving.wait(_LEAVES):
            return
        rank, child = failed[0]
        _say(
            f"Rank {rank} (process {child.pid}) ended with {_code(child.returncode)}. Rank 0 "
            f"(process {os.getpid()}) is killed; its stack:"
        )
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        traceback.print_stack(frame)
        self._end_children()
        os.kill(os.getpid(), signal.SIGKILL)

    def failed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Show an uncaught error, and end the other ranks when this process ends."""
        self._leaving.set()
        self._others_are_late = _is_of_others(kind)
        atexit.register(self._end_children)  # PyTorch prints the output of a hook when it returns
        _show(self._show, kind, error, trace)

    def _end_children(self) -> None:
        until = time.monotonic() + _ENDS
        while time.monotonic() < until and any(child.poll() is None for child in self._children):
            time.sleep(_LOOKS / 10)
        for rank, child in enumerate(self._children, 1):
            if child.poll() is not None:
                continue
            if self._others_are_late:
                _say(f"Rank {rank} (process {child.pid}) is killed; its stack:")
                child.send_signal(signal.SIGUSR2)
                time.sleep(_TELLS)
            child.kill()
            child.wait()


def _is_there(process: int) -> bool:
    """Return whether a process exists; the ranks of a killed process get another parent."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _end_with(parent: int, pipe: int | None) -> None:
    """End this process soon after its parent was killed.

    Parameters
    ----------
    parent
        The parent's process id.
    pipe
        The pipe to which it writes at a normal end; None if it ended before this process opened it.
    """
    while os.getppid() == parent:
        time.sleep(_LOOKS)
    if pipe is None or not _ended_normally(pipe):
        time.sleep(_LEAVES)  # a collective fails first, with a message
        os.kill(os.getpid(), signal.SIGKILL)


def _ended_normally(pipe: int) -> bool:
    try:
        return os.read(pipe, len(_ENDED)) == _ENDED
    except BlockingIOError:  # a fork of the parent still has the other end open
        return False


def _show(
    show: _Hook, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an error; if another rank caused it, only its message."""
    if _is_of_others(kind):
        _say(f"{kind.__name__}: {error}")
    else:
        show(kind, error, trace)


def _is_of_others(kind: type[BaseException]) -> bool:
    """Return whether an error means that another rank is missing."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and issubclass(
        kind, distributed.DistBackendError | distributed.DistStoreError
    )


def _say(sentence: Any) -> None:
    print(printable(str(sentence), keep="\n\t"), file=sys.stderr, flush=True)


def _code(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
