"""The command's place on PATH: behind all others, so that the vendor's always comes first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

BIN = Path(__file__).parent / "bin"

_PYTHON = "HPU_MAGIC_PYTHON"


def offer() -> None:
    """Let this process and its children find ``hl-smi`` where no other program has that name."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if str(BIN) not in places:
        os.environ["PATH"] = os.pathsep.join([*places, str(BIN)])
    # PATH may name another Python, or none.
    os.environ[_PYTHON] = sys.executable or "python3"


def is_offered() -> bool:
    """Tell whether this process or one above it has called `offer`."""
    return _PYTHON in os.environ


def is_simulated(program: str | os.PathLike[str]) -> bool:
    """Tell whether a program is this command, of this installation of hpu_magic or of another."""
    parts = Path(program).resolve().parts
    return parts[-5:] == (*BIN.parts[-4:], "hl-smi")
