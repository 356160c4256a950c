"""Publish which notebook this process runs and when its last cell ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpu_magic import notebook
from hpu_magic.sessions import Announcement

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class _Published:
    """The published session of a shell; the shell's events update it."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._announcement = Announcement(
            notebook.path(shell),
            running=_running(shell),
            # Requests to stop a fit arrive on the control channel.
            stoppable=hasattr(getattr(shell, "kernel", None), "control_handlers"),
        )
        self._events = shell.events
        self._events.register("pre_run_cell", self._before)
        self._events.register("post_run_cell", self._after)

    def close(self) -> None:
        self._events.unregister("pre_run_cell", self._before)
        self._events.unregister("post_run_cell", self._after)
        self._announcement.withdraw()

    # IPython inspects the signatures to decide which arguments to pass.
    def _before(self, info: object) -> None:
        self._announcement.begin()

    def _after(self, result: object) -> None:
        self._announcement.end()


_published: _Published | None = None


def enable(shell: InteractiveShell) -> None:
    """Start publishing."""
    global _published
    disable(shell)
    _published = _Published(shell)


def disable(shell: InteractiveShell) -> None:
    """Stop publishing."""
    global _published
    if _published is not None:
        _published.close()
        _published = None


def _running(shell: InteractiveShell) -> bool:
    """Return whether a cell is running."""
    return getattr(shell.displayhook, "exec_result", None) is not None
