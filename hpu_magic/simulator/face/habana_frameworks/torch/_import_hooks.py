"""Run functions after a PyTorch module has been imported.

Some of these modules take a second to import, so the bridge must not import them itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def when_imported(name: str, hook: Callable[[], None]) -> None:
    """Call `hook` as soon as the module has been imported, or now if it already has been."""
    if name in sys.modules:
        hook()
        return
    if not _hooks:
        sys.meta_path.insert(0, _Finder())
    _hooks.setdefault(name, []).append(hook)


_hooks: dict[str, list[Callable[[], None]]] = {}


class _HookLoader(importlib.abc.Loader):
    """Loads a module with its own loader, then calls the hooks."""

    def __init__(self, loader: importlib.abc.Loader, hooks: list[Callable[[], None]]) -> None:
        self._loader = loader
        self._hooks = hooks

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        while self._hooks:
            self._hooks.pop(0)()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules with the standard finders, and adds the hooks to their loaders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        hooks = _hooks.pop(name, None)  # pop first: find_spec() calls this finder again
        if hooks is None:
            return None
        if not _hooks:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _HookLoader(spec.loader, hooks)
        return spec
