"""Publish the notebook of this process, and when it last ran a cell, to other processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpu_magic.sessions import Announcement

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_VS_CODE = "__vsc_ipynb_file__"


class _Told:
    """The announcement of a shell, updated by its events."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._announcement = Announcement(
            notebook(shell),
            running=_running(shell),
            # `control` answers if there is a control channel.
            stoppable=hasattr(getattr(shell, "kernel", None), "control_handlers"),
        )
        self._events = shell.events
        self._events.register("pre_run_cell", self._before)
        self._events.register("post_run_cell", self._after)

    def close(self) -> None:
        self._events.unregister("pre_run_cell", self._before)
        self._events.unregister("post_run_cell", self._after)
        self._announcement.withdraw()

    # IPython inspects the parameters to choose the arguments.
    def _before(self, info: object) -> None:
        self._announcement.begin()

    def _after(self, result: object) -> None:
        self._announcement.end()


_told: _Told | None = None


def enable(shell: InteractiveShell) -> None:
    """Start publishing."""
    global _told
    disable(shell)
    _told = _Told(shell)


def disable(shell: InteractiveShell) -> None:
    """Stop publishing."""
    global _told
    if _told is not None:
        _told.close()
        _told = None


def notebook(shell: InteractiveShell) -> str | None:
    """Return the path of the shell's notebook if the front end sets it; None in a terminal."""
    if not hasattr(shell, "kernel"):
        return None
    # VS Code sets a variable, and uses generated names for servers.
    told = shell.user_ns.get(_VS_CODE) or os.environ.get("JPY_SESSION_NAME")
    return told if isinstance(told, str) and told else None


def _running(shell: InteractiveShell) -> bool:
    """Return whether a cell is running."""
    return getattr(shell.displayhook, "exec_result", None) is not None
