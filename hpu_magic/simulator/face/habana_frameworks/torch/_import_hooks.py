"""Doing something to a module of PyTorch as soon as it is imported, if ever.

Some of PyTorch's modules take a second to import, which nobody should pay who does not use them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def when_imported(name: str, act: Callable[[], None]) -> None:
    """Act now if the module is there, else right after it has been imported."""
    if name in sys.modules:
        act()
        return
    if not _waiting:
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(act)


_waiting: dict[str, list[Callable[[], None]]] = {}


class _ActAfter(importlib.abc.Loader):
    """Loads a module with its own loader, then does what waits for it."""

    def __init__(self, loader: importlib.abc.Loader, acts: list[Callable[[], None]]) -> None:
        self._loader = loader
        self._acts = acts

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, and ours after it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        while self._acts:
            self._acts.pop(0)()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are waited for as everybody does, with what waits appended."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        acts = _waiting.pop(name, None)  # once; and the search below must not come back here
        if acts is None:
            return None
        if not _waiting:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ActAfter(spec.loader, acts)
        return spec
