"""Installs the import finders when Python starts; ``hpu_magic_simulator.pth`` calls it.

A script may import the bridge before torch, and the import of torch turns the simulator on. Child
processes of a simulated process, such as pip, must report the same versions.
"""

from __future__ import annotations

from hpu_magic.simulator.activation import is_requested
from hpu_magic.simulator.cards import hl_smi
from hpu_magic.simulator.finder import install_distributions, install_finder


def offer() -> None:
    """Install the finders for ``habana_frameworks``, without loading anything.

    A child of a simulated process gets only the finder for version checks if the simulator is not
    requested in the child.
    """
    if is_requested():
        install_finder()
        hl_smi.offer()
    elif hl_smi.is_offered():
        install_distributions()
