"""What Python runs at its start where ``HPU_MAGIC_SIMULATOR`` is set (``hpu_magic_simulator.pth``).

A script may import the bridge before torch, whose import is what turns the simulator on.
"""

from __future__ import annotations

from .activation import is_requested
from .finder import install_finder


def offer() -> None:
    """Let ``habana_frameworks`` be found, behind all other packages; nothing is loaded yet."""
    if is_requested():
        install_finder()
