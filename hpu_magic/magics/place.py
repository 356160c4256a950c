"""Names of the user's lines, as the notebook shows them."""

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
    """Return the number of the cell that is being run; None outside of cells."""
    frame = sys._getframe()
    while frame is not None:
        number = _cell_number(shell, frame.f_code.co_filename)
        if number is not None:
            return number
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _cell_number(shell: Any, file: str) -> int | None:
    # IPython says "In [3]" of a file that it made for a cell.
    names = shell.compile.format_code_name(file)
    found = re.search(r"\d+", names[1]) if names else None
    return int(found[0]) if found else None
