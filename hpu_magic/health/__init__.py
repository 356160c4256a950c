"""What is wrong with this machine, and how to fix it: the checks of ``hpu_magic.doctor()``.

They look at installation, versions, driver, cards, host, environment flags, folders and Jupyter.
They load neither torch nor anything else that they check, take no card, and need no card and no
IPython.
"""

from __future__ import annotations

from hpu_magic.health.diagnosis import SCHEMA, Diagnosis, examine
from hpu_magic.health.finding import Finding
from hpu_magic.health.machine import Machine

__all__ = ["SCHEMA", "Diagnosis", "Finding", "Machine", "examine"]
