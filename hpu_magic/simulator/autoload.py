"""The ``torch.backends`` entry point, which PyTorch calls at the end of ``import torch``.

The engine must be loaded this early, because PyTorch selects a process's accelerator on the first
``backward()``, ``torch.accelerator`` query or pinned allocation, and does not change it later.
"""

from __future__ import annotations

import importlib
import sys

from hpu_magic.simulator.activation import SWITCH, activate, is_requested
from hpu_magic.simulator.finder import vendor_package


def autoload() -> None:
    """Load the engine if the simulator is requested; otherwise do nothing.

    The process ends if an environment variable has an invalid value.
    """
    if not is_requested():
        return
    if real := vendor_package():
        print(
            f"hpu_magic: {SWITCH} is ignored because the vendor's package is installed ({real}).",
            file=sys.stderr,
        )
        return
    try:
        activate()
    except ValueError as invalid:  # PyTorch would raise another error, which hides the reason
        sys.exit(f"hpu_magic: {invalid}")
    importlib.import_module("habana_frameworks.torch")
