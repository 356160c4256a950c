"""The function that PyTorch runs at the end of ``import torch`` (entry point ``torch.backends``).

The engine must load this early, because PyTorch selects a process's accelerator at the first
``backward()``, query of ``torch.accelerator`` or pinned allocation, and does not change it later.
"""

from __future__ import annotations

import importlib
import sys

from hpu_magic.simulator.activation import SWITCH, activate, is_requested
from hpu_magic.simulator.finder import vendor_package


def autoload() -> None:
    """Load the engine if the simulator is requested; otherwise do nothing."""
    if not is_requested():
        return
    if real := vendor_package():
        print(
            f"hpu_magic: {SWITCH} is ignored because the vendor's package is installed ({real}).",
            file=sys.stderr,
        )
        return
    activate()
    importlib.import_module("habana_frameworks.torch")
