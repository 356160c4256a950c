"""Describe lines of the user's code in the same way as IPython."""

from __future__ import annotations

import os
import re
import sys
from typing import Any


def place(shell: Any, running: int | None, file: str, line: int) -> str:
    """Return ``line 3`` for cell `running`, else ``In [2], line 3`` or ``train.py, line 3``."""
    number = _cell_number(shell, file)
    if number is None:
        return f"{os.path.basename(file)}, line {line}"
    return f"line {line}" if number == running else f"In [{number}], line {line}"


def running_cell(shell: Any) -> int | None:
    """Return the number of the running cell, or None outside a cell."""
    frame = sys._getframe()
    while frame is not None:
        if (number := _cell_number(shell, frame.f_code.co_filename)) is not None:
            return number
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _cell_number(shell: Any, file: str) -> int | None:
    # IPython displays a cell's file as "In [3]".
    names = shell.compile.format_code_name(file)
    found = re.search(r"\d+", names[1]) if names else None
    return int(found[0]) if found else None
