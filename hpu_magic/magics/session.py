"""Tells other processes which notebook this is, and when it last ran a cell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpu_magic.sessions import Announcement

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_VS_CODE = "__vsc_ipynb_file__"


class _Told:
    """The shell's announcement, kept up by its events."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._announcement = Announcement(
            notebook(shell),
            running=_running(shell),
            # `control` answers, where there is a control channel.
            stoppable=hasattr(getattr(shell, "kernel", None), "control_handlers"),
        )
        self._events = shell.events
        self._events.register("pre_run_cell", self._before)
        self._events.register("post_run_cell", self._after)

    def close(self) -> None:
        self._events.unregister("pre_run_cell", self._before)
        self._events.unregister("post_run_cell", self._after)
        self._announcement.withdraw()

    # IPython looks at the parameters to know what to pass.
    def _before(self, info: object) -> None:
        self._announcement.begin()

    def _after(self, result: object) -> None:
        self._announcement.end()


_told: _Told | None = None


def enable(shell: InteractiveShell) -> None:
    """Begin to tell."""
    global _told
    disable(shell)
    _told = _Told(shell)


def disable(shell: InteractiveShell) -> None:
    """Tell nothing any more."""
    global _told
    if _told is not None:
        _told.close()
        _told = None


def notebook(shell: InteractiveShell) -> str | None:
    """Return the path of the shell's notebook, where a front end has told; None in a terminal."""
    if not hasattr(shell, "kernel"):
        return None
    # VS Code sets a variable, and gives servers a name of its own making.
    told = shell.user_ns.get(_VS_CODE) or os.environ.get("JPY_SESSION_NAME")
    return told if isinstance(told, str) and told else None


def _running(shell: InteractiveShell) -> bool:
    """Tell whether a cell runs now, whose result the display hook is to note."""
    return getattr(shell.displayhook, "exec_result", None) is not None
