"""The checks of ``hpu_magic.doctor()``, which find problems on this machine and suggest fixes.

The checks cover the installation, versions, driver, cards, host, environment flags, folders and
Jupyter. A check does not acquire a card or import the packages that it examines, such as torch.
Neither a card nor IPython is required.
"""

from __future__ import annotations

from hpu_magic.health.diagnosis import SCHEMA, Diagnosis, examine
from hpu_magic.health.finding import Finding
from hpu_magic.health.machine import Machine

__all__ = ["SCHEMA", "Diagnosis", "Finding", "Machine", "examine"]
