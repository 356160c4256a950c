"""The processes of a fit end together: one that dies or hangs is named, and the others leave.

A rank that fails shows its traceback. The others learn of it in their next collective, which
raises; nobody needs a traceback of that, so only the sentence is shown. Who does not leave by
itself is asked where it is, and ended.
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
"""The process that started this one as a rank, and its end of a pipe, in the environment."""
_ENDED = b"."  # what rank 0 writes for each other when it ends by itself
_LOOKS = 0.2  # seconds between two looks at who is alive
_LEAVES = 15.0  # seconds in which a collective tells that somebody is missing
_ENDS = 2.0  # seconds that a process takes to end by itself
_TELLS = 0.5  # seconds in which it writes where it is


@contextmanager
def begun_by_this() -> Generator[int, None, None]:
    """Tell the processes that are started inside the block who started them.

    They read from a pipe of this process how it ended: nothing has to be removed after a kill.

    Yields
    ------
    int
        The end of that pipe to which `watch_from_parent` writes.
    """
    reading, writing = os.pipe()
    os.environ[STARTED_BY] = f"{os.getpid()}:{reading}"
    try:
        yield writing
    finally:
        del os.environ[STARTED_BY]


def watch_from_parent(children: list[subprocess.Popen[bytes]], writing: int) -> None:
    """Let the ranks that this process has started end with it, and it with them.

    Parameters
    ----------
    children
        The processes.
    writing
        As `begun_by_this` yields it.
    """
    atexit.register(os.write, writing, _ENDED * len(children))
    watch = _Parent(list(children), sys.excepthook)
    sys.excepthook = watch.failed
    threading.Thread(target=watch.run, name="hpu_magic ranks", daemon=True).start()


def watch_from_child() -> None:
    """Let this process end with the one that started it as a rank, if one did."""
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
    """Rank 0, which has started the others of this machine."""

    def __init__(self, children: list[subprocess.Popen[bytes]], show: _Hook) -> None:
        self._children = children
        self._show = show
        self._leaving = threading.Event()
        self._others_are_late = False

    def run(self) -> None:
        """Wait until all have ended, or one has failed and this process stays where it is."""
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
            f"(process {os.getpid()}) is ended too; it was here:"
        )
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        traceback.print_stack(frame)
        self._end_children()
        os.kill(os.getpid(), signal.SIGKILL)

    def failed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Show an error that nobody caught, and end the others at this process's end."""
        self._leaving.set()
        self._others_are_late = _is_of_others(kind)
        atexit.register(self._end_children)  # PyTorch keeps what a hook prints until it returns
        _show(self._show, kind, error, trace)

    def _end_children(self) -> None:
        until = time.monotonic() + _ENDS
        while time.monotonic() < until and any(child.poll() is None for child in self._children):
            time.sleep(_LOOKS / 10)
        for rank, child in enumerate(self._children, 1):
            if child.poll() is not None:
                continue
            if self._others_are_late:
                _say(f"Rank {rank} (process {child.pid}) is ended; it was here:")
                child.send_signal(signal.SIGUSR2)
                time.sleep(_TELLS)
            child.kill()
            child.wait()


def _is_there(process: int) -> bool:
    """Tell whether a process is there; one that was killed has left its ranks to another."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _end_with(parent: int, pipe: int | None) -> None:
    """End this process soon after the one that started it was killed.

    Parameters
    ----------
    parent
        The number of that process.
    pipe
        What it writes to when it ends by itself; None if it had ended before this one could look.
    """
    while os.getppid() == parent:
        time.sleep(_LOOKS)
    if pipe is None or not _ended_by_itself(pipe):
        time.sleep(_LEAVES)  # a collective fails first, with a sentence
        os.kill(os.getpid(), signal.SIGKILL)


def _ended_by_itself(pipe: int) -> bool:
    try:
        return os.read(pipe, len(_ENDED)) == _ENDED
    except BlockingIOError:  # a process that it forked has the other end open still
        return False


def _show(
    show: _Hook, kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an error; of one that another rank caused, its last line is enough."""
    if _is_of_others(kind):
        _say(f"{kind.__name__}: {error}")
    else:
        show(kind, error, trace)


def _is_of_others(kind: type[BaseException]) -> bool:
    """Return whether it tells that ranks did not come together."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and issubclass(
        kind, distributed.DistBackendError | distributed.DistStoreError
    )


def _say(sentence: Any) -> None:
    print(printable(str(sentence), keep="\n\t"), file=sys.stderr, flush=True)


def _code(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
