"""Loading the bridge as part of ``import torch``, by the vendor's name for it."""

from __future__ import annotations

import importlib
import os


def __autoload() -> None:
    """Import the bridge, unless ``PT_HPU_AUTOLOAD`` is 0.

    Where that is neither 0 nor 1, lazy mode (``PT_HPU_LAZY_MODE=1``) leaves the import to the
    script.
    """
    asked = os.environ.get("PT_HPU_AUTOLOAD", "-1")
    lazy = os.environ.get("PT_HPU_LAZY_MODE", "0") == "1"
    if asked == "1" or (asked != "0" and not lazy):
        importlib.import_module("habana_frameworks.torch")
