"""Detect the front end: a notebook, a console or a terminal."""

from __future__ import annotations

import os
from typing import Any

from hpu_magic.program_name import command_words

_CONSOLES = {"jupyter-console", "jupyter_console"}


def in_notebook() -> bool:
    """Return whether outputs can be updated and can contain pictures and widgets."""
    return _has_kernel() and not in_console()


def in_console() -> bool:
    """Return whether a console started this kernel for its own use.

    A console prints the text of each output once and ignores later updates.
    """
    started_by = os.environ.get("JPY_PARENT_PID", "")
    if not _has_kernel() or not started_by.isdigit():
        return False
    try:
        words = command_words(int(started_by))
    except PermissionError:  # another user's process is not this user's console
        return False
    return any(os.path.basename(word) in _CONSOLES for word in words[:3])


def unattended() -> bool:
    """Return whether a program such as papermill or nbconvert runs the cells, instead of a page.

    These programs do not accept input and do not show widgets. The output that they save must be
    complete without a kernel.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return request.get("content", {}).get("allow_stdin") is False


def _has_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")
