"""The checks of ``hpu_magic.doctor()``, which find problems on this machine and suggest fixes.

They examine the installation, versions, driver, cards, host, environment flags, folders and
Jupyter. They do not acquire a card or import any package that they check, such as torch, and they
require neither a card nor IPython.
"""

from __future__ import annotations

from hpu_magic.health.diagnosis import SCHEMA, Diagnosis, examine
from hpu_magic.health.finding import Finding
from hpu_magic.health.machine import Machine

__all__ = ["SCHEMA", "Diagnosis", "Finding", "Machine", "examine"]
