"""Bring ``hpu`` into Lightning as soon as Lightning is imported, and not before.

Importing this module loads neither Lightning nor torch. ``install()`` acts at
once on a Lightning that is loaded already; otherwise a finder waits for the
import, lets Python's own machinery do it, and acts right after it.
"""

from __future__ import annotations

import importlib
import sys
import warnings

from hpu_magic.lightning.names import FABRICS, NAMESPACES, loaded_namespaces
from hpu_magic.runtime.start.after_import import AfterImport


def _register(namespace: str) -> None:
    """Register ``hpu`` with a Lightning that has just been imported.

    A Lightning that hpu_magic does not know must still import, so the refusal
    becomes a warning here; ``import hpu_magic.lightning`` raises it.
    """
    namespaces = importlib.import_module("hpu_magic.lightning.namespaces")
    connector = importlib.import_module("hpu_magic.lightning.connector")
    try:
        if namespace in FABRICS:
            namespaces.fabric_plugins(namespace)
        else:
            namespaces.plugins(namespace)
    except connector.UnsupportedLightningError as refusal:
        warnings.warn(str(refusal), stacklevel=2)


_FINDER = AfterImport(NAMESPACES + FABRICS, _register)


def install() -> None:
    """Make ``accelerator="hpu"`` work in every ``Trainer`` and ``Fabric`` of this process."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    for name in loaded_namespaces(FABRICS + NAMESPACES):
        _register(name)
