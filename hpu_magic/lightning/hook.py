"""Register ``hpu`` with Lightning right after Lightning is imported.

Importing this module loads neither Lightning nor torch. ``install()`` registers ``hpu`` with all
copies of Lightning that are already loaded, and adds an import finder for those imported later.
"""

from __future__ import annotations

import importlib
import sys
import warnings

from hpu_magic.lightning.names import FABRICS, NAMESPACES, loaded_namespaces
from hpu_magic.runtime.start.after_import import AfterImport


def _register(namespace: str) -> None:
    """Register ``hpu`` with a copy of Lightning that has just been imported.

    An unsupported version must remain importable, so the error becomes a warning.
    """
    namespaces = importlib.import_module("hpu_magic.lightning.namespaces")
    connector = importlib.import_module("hpu_magic.lightning.connector")
    try:
        namespaces.plugins(namespace)
    except connector.UnsupportedLightningError as refusal:
        warnings.warn(str(refusal), stacklevel=2)


_FINDER = AfterImport(NAMESPACES + FABRICS, _register)


def install() -> None:
    """Make ``accelerator="hpu"`` work in every ``Trainer`` and ``Fabric`` in this process."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    for name in loaded_namespaces(FABRICS + NAMESPACES):
        _register(name)
