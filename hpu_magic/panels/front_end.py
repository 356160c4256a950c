"""What shows the output of this process: a notebook, or only lines of text."""

from __future__ import annotations

import os
from typing import Any

from hpu_magic.program_name import command_words

_CONSOLES = {"jupyter-console", "jupyter_console"}


def in_notebook() -> bool:
    """Return whether there are outputs here that can be written over, with pictures and widgets."""
    return _has_kernel() and not in_console()


def in_console() -> bool:
    """Return whether this is a kernel that a console has started for itself.

    A console prints the text of each output once: it passes over what is written over later.
    """
    started_by = os.environ.get("JPY_PARENT_PID", "")
    if not _has_kernel() or not started_by.isdigit():
        return False
    try:
        words = command_words(int(started_by))
    except PermissionError:  # not this user's, and so no console of theirs
        return False
    return any(os.path.basename(word) in _CONSOLES for word in words[:3])


def unattended() -> bool:
    """Return whether a program runs the cells, such as papermill or nbconvert, and no page.

    Whoever cannot be asked anything shows no widgets either, and what is saved in the end should
    need no kernel.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return request.get("content", {}).get("allow_stdin") is False


def _has_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")
