"""Entry point that loads the bridge during ``import torch``."""

from __future__ import annotations

import importlib
import os


def __autoload() -> None:
    """Import the bridge unless ``PT_HPU_AUTOLOAD`` is 0.

    If the variable is not set, lazy mode (``PT_HPU_LAZY_MODE=1``) also prevents the import, because
    lazy-mode scripts import the bridge themselves.
    """
    autoload = os.environ.get("PT_HPU_AUTOLOAD", "-1")
    lazy = os.environ.get("PT_HPU_LAZY_MODE", "0") == "1"
    if autoload == "1" or (autoload != "0" and not lazy):
        importlib.import_module("habana_frameworks.torch")
