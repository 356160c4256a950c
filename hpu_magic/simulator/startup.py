"""What Python runs at its start, by ``hpu_magic_simulator.pth``, where the simulator is wanted.

A script may import the bridge before torch, whose import is what turns the simulator on. A
process that has turned it on by itself has its children, such as pip, tell the same versions.
"""

from __future__ import annotations

from hpu_magic.simulator.activation import is_requested
from hpu_magic.simulator.cards import hl_smi
from hpu_magic.simulator.finder import install_distributions, install_finder


def offer() -> None:
    """Let ``habana_frameworks`` be found, behind all other packages; nothing is loaded yet.

    In a child of a simulated process, which has not been asked to simulate, only version checks
    find the vendor's plug-in.
    """
    if is_requested():
        install_finder()
        hl_smi.offer()
    elif hl_smi.is_offered():
        install_distributions()
