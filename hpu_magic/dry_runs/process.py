"""Run a child process that ends with this process, and show its output while it runs."""

from __future__ import annotations

import codecs
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from hpu_magic.parallel.guard import Guard, end

_POLL = 0.2  # seconds
_PART = 1 << 16  # bytes


def run(command: Sequence[str], variables: Mapping[str, str], output: Any = None) -> int:
    """Run a command to its end and return its status.

    `output` is a file for its standard output; None means that of this process. An exception in
    this process, such as an interrupt, ends the child and its children.
    """
    if output is None and sys.stdout in (sys.__stdout__, sys.__stderr__):
        output = sys.stdout
    # A child cannot inherit the standard output of a notebook.
    relayed = output is None
    options: dict[str, Any] = {"stdout": output, "env": variables}
    if relayed:
        options |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        options |= {"stderr": subprocess.PIPE, "env": {**variables, "PYTHONUNBUFFERED": "1"}}
        # Jupyter sends interrupts to the process group of the kernel.
        options |= {"start_new_session": True}
    process = subprocess.Popen(command, **options)
    child = psutil.Process(process.pid)
    guard = None
    try:
        guard = Guard([process.pid])
        if relayed:
            _relay(process)
        return process.wait()
    except BaseException:
        end([child])
        process.wait()
        raise
    finally:
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        if guard is not None:
            guard.dismiss()


def _relay(process: subprocess.Popen[bytes]) -> None:
    """Write the output and errors of a process to those of this process until it has ended."""
    decode = codecs.getincrementaldecoder("utf-8")
    with selectors.DefaultSelector() as pipes:
        for pipe, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert pipe is not None
            pipes.register(pipe, selectors.EVENT_READ, (decode("replace"), target))
        while pipes.get_map():
            ended = process.poll() is not None
            ready = pipes.select(_POLL)
            for key, _ in ready:
                decoder, target = key.data
                part = os.read(key.fd, _PART)
                target.write(decoder.decode(part, final=not part))
                target.flush()
                if not part:
                    pipes.unregister(key.fileobj)
            if ended and not ready:
                return  # a child of the process keeps the pipe open
