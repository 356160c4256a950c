"""Bring ``hpu`` into Lightning as soon as Lightning is imported, and not before.

Importing this module loads neither Lightning nor torch. ``install()`` acts at
once on a Lightning that is loaded already; otherwise a finder waits for the
import, lets Python's own machinery do it, and acts right after it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

from hpu_magic.lightning.names import FABRICS, NAMESPACES, loaded_namespaces

__all__ = ["install"]


class _RegisterAfter(importlib.abc.Loader):
    """Load a module with its own loader, then register ``hpu`` with it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register(module.__name__)


class _Finder(importlib.abc.MetaPathFinder):
    """Find the Lightning namespaces as usual, with registration appended."""

    def __init__(self) -> None:
        self._searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in NAMESPACES + FABRICS or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisterAfter(spec.loader)
        return spec


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


def install() -> None:
    """Make ``accelerator="hpu"`` work in every ``Trainer`` and ``Fabric`` of this process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in loaded_namespaces(FABRICS + NAMESPACES):
        _register(name)
