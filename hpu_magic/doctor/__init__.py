"""What is wrong with this machine, and the mend: ``hpu_magic.doctor()``.

Looks at installation, versions, driver, cards, host, environment flags, folders and Jupyter.
Loads no torch and nothing else that it asks about, acquires no card, and needs neither a card
nor IPython. This package can be called itself, so that its name is the command's as well.
"""

from __future__ import annotations

import sys
from types import ModuleType

from .diagnosis import SCHEMA, Diagnosis, examine
from .finding import Finding
from .machine import Machine

__all__ = ["SCHEMA", "Diagnosis", "Finding", "Machine", "doctor", "examine"]


def doctor(*, everything: bool = False) -> Diagnosis:
    """Look at this machine and say what is red, amber and green, with the mend.

    Parameters
    ----------
    everything : bool
        Show what is green one by one as well.
    """
    return examine(Machine.here(), everything=everything)


class _Callable(ModuleType):
    """A package that is called as its function of the same name."""

    def __call__(self, *, everything: bool = False) -> Diagnosis:
        return doctor(everything=everything)


_Callable.__call__.__doc__ = doctor.__doc__
sys.modules[__name__].__class__ = _Callable
