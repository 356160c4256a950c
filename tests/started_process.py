"""Python in a process of its own that has come to its point when it prints a line."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def started(code: str) -> Iterator[subprocess.Popen[str]]:
    """Run code until it has printed a line; afterwards a line of input may let it go on."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.communicate("\n")
