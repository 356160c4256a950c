"""``hl-smi`` for the simulated cards, with the vendor's options and layout.

The command is appended to PATH, so that the vendor's command takes precedence.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["BIN", "is_offered", "is_simulated", "offer"]

BIN = Path(__file__).parent / "bin"

_PYTHON = "HPU_MAGIC_PYTHON"


def offer() -> None:
    """Append the folder of ``hl-smi`` to the PATH of this process and its children."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if str(BIN) not in places:
        os.environ["PATH"] = os.pathsep.join([*places, str(BIN)])
    # PATH may contain a different Python, or none at all.
    os.environ[_PYTHON] = sys.executable or "python3"


def is_offered() -> bool:
    """Return whether this process or an ancestor has called `offer`."""
    return _PYTHON in os.environ


def is_simulated(program: str | os.PathLike[str]) -> bool:
    """Return whether a program is the simulated ``hl-smi`` of any installation of hpu_magic."""
    parts = Path(program).resolve().parts
    return parts[-5:] == (*BIN.parts[-4:], "hl-smi")
