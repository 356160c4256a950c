"""Registers the device and its compile backend with Dynamo, as soon as Dynamo is imported.

Importing Dynamo takes a second that nobody should pay who does not compile.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

_DYNAMO = "torch._dynamo"


class _RegisterAfter(importlib.abc.Loader):
    """Loads Dynamo with its own loader, then does what waits for it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, and ours after it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        while _waiting:
            _waiting.pop(0)()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Dynamo as everybody does, with what waits for it appended."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _DYNAMO:
            return None
        sys.meta_path.remove(self)  # once; and the search below must not come back here
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisterAfter(spec.loader)
        return spec


_waiting: list[Callable[[], None]] = []


def install() -> None:
    """Register now if Dynamo is there, else when it comes."""
    when_imported(_register)


def when_imported(act: Callable[[], None]) -> None:
    """Do something to Dynamo now if it is there, else when it comes."""
    if _DYNAMO in sys.modules:
        act()
        return
    if not _waiting:
        sys.meta_path.insert(0, _Finder())
    _waiting.append(act)


def _register() -> None:
    for part in ("device_interface", "fake_kernels", "compile_backend.backends"):
        importlib.import_module(f"habana_frameworks.torch.dynamo.{part}").register()
