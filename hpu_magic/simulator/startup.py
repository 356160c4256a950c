"""Installs the import finders when Python starts. Called by ``hpu_magic_simulator.pth``.

The finders are needed this early because a script may import the bridge before ``import torch``
turns the simulator on. In addition, child processes of a simulated process (such as pip) must
report the same versions.
"""

from __future__ import annotations

from hpu_magic.simulator.activation import is_requested
from hpu_magic.simulator.cards import hl_smi
from hpu_magic.simulator.finder import install_distributions, install_finder


def offer() -> None:
    """Install the finders for ``habana_frameworks`` without loading anything.

    If the simulator is not requested in a child of a simulated process, that child gets only the
    finder for version checks.
    """
    if is_requested():
        install_finder()
        hl_smi.offer()
    elif hl_smi.is_offered():
        install_distributions()
