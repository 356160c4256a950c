"""Call a function right after certain modules are imported, without importing them itself."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable, Collection, Sequence
from types import ModuleType


class _ActAfter(importlib.abc.Loader):
    """Loads a module with its own loader, and then calls `act`."""

    def __init__(self, loader: importlib.abc.Loader, act: Callable[[str], None]) -> None:
        self._loader = loader
        self._act = act

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._act(module.__name__)


class AfterImport(importlib.abc.MetaPathFinder):
    """Finder for ``sys.meta_path`` that calls ``act(name)`` after a given module is loaded."""

    def __init__(self, names: Collection[str], act: Callable[[str], None]) -> None:
        self._names = names
        self._act = act
        self._searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec found by the other finders, with a loader that calls `act`."""
        if name not in self._names or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _ActAfter(spec.loader, self._act)
        return spec
