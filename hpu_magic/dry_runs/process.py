"""Run child processes that end with this process, and show their output while they run."""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import psutil

from hpu_magic.parallel.guard import Guard, end

_POLL = 0.2  # seconds
_PART = 1 << 16  # bytes
_AFTER_INTERRUPT = 10.0  # seconds


class Processes:
    """Child processes that end with this process, even if a ``with`` block raises an exception.

    Parameters
    ----------
    output
        File for their standard output; None means the output of this process.

    Attributes
    ----------
    create
        Creates a process, like `subprocess.Popen`.
    """

    create: type[subprocess.Popen[bytes]] = subprocess.Popen

    def __init__(self, output: Any = None) -> None:
        if output is None and sys.stdout in (sys.__stdout__, sys.__stderr__):
            output = sys.stdout
        self._output = output
        # Children cannot inherit the standard output of a notebook. They share two pipes.
        self._pipes = [os.pipe(), os.pipe()] if output is None else []
        self._started: list[tuple[subprocess.Popen[bytes], psutil.Process, Guard]] = []
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
        if error is not None:
            end([each for _, each, _ in self._started])
        for process, _, guard in self._started:
            process.wait()
            guard.dismiss()
        for ends in self._pipes:
            for descriptor in ends:
                os.close(descriptor)

    def start(
        self, command: Sequence[str], variables: Mapping[str, str], inherited: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a process, which inherits some file descriptors; any thread can call this.

        Raises
        ------
        RuntimeError
            The ``with`` block has ended.
        """
        options: dict[str, Any] = {"stdout": self._output, "env": variables}
        if self._pipes:
            (_, stdout), (_, stderr) = self._pipes
            options |= {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
            options |= {"env": {**variables, "PYTHONUNBUFFERED": "1"}}
            # Jupyter sends interrupts to the process group of the kernel.
            options |= {"start_new_session": True}
        with self._lock:
            if self._closed:
                raise RuntimeError("Processes can no longer be started.")
            process = self.create(command, pass_fds=inherited, **options)
            child = psutil.Process(process.pid)
            self._started.append((process, child, Guard([process.pid])))
        return process

    def end_by_interrupt(self) -> bool:
        """Return whether all processes end soon after an interrupt, which they also receive."""
        until = time.monotonic() + _AFTER_INTERRUPT
        for _, child, _ in self._started if self._pipes else ():  # in sessions of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGINT)
        try:
            for process, _, _ in self._started:
                process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def show_output(self, ended: Callable[[], bool]) -> None:
        """Forward the output and errors of all processes to this process until they end.

        If the processes write to a file directly, this does nothing.
        """
        if not self._pipes:
            return
        decode = codecs.getincrementaldecoder("utf-8")
        with selectors.DefaultSelector() as pipes:
            for (pipe, _), target in zip(self._pipes, (sys.stdout, sys.stderr), strict=True):
                pipes.register(pipe, selectors.EVENT_READ, (decode("replace"), target))
            while True:
                is_last = ended()
                ready = pipes.select(0 if is_last else _POLL)
                for key, _ in ready:
                    decoder, target = key.data
                    target.write(decoder.decode(os.read(key.fd, _PART)))
                    target.flush()
                if is_last and not ready:
                    return
