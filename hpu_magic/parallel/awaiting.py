"""Top-level ``await`` in the cells of workers."""

from __future__ import annotations

import threading
from typing import Any


class _MainThread:
    """Stands for the thread of the shell's channel, which an engine of ipyparallel lacks.

    ipykernel from 7.2 on asks it, while a cell awaits, which thread is the one to interrupt.
    Everywhere else it is to be taken as absent.
    """

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


def let_cells_await(shell: Any) -> None:
    """Let cells of an engine's shell await; without that, ipykernel loses their replies."""
    kernel = shell.kernel
    if getattr(kernel, "shell_channel_thread", kernel) is not None:
        return  # this release does not ask, or the thread is there
    kernel.shell_channel_thread = _MainThread()
    kind = type(kernel)
    no_subshells = {"_supports_kernel_subshells": property(lambda _: False)}
    kernel.__class__ = type(kind.__name__, (kind,), no_subshells)
