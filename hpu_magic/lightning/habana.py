"""Optional support for ``import lightning_habana`` in code written for that package.

To enable it, call ``as_lightning_habana()``, or set ``HPU_MAGIC_LIGHTNING_HABANA=1`` before
importing ``hpu_magic.lightning``. An import finder for the modules of ``lightning_habana`` is then
added after all other finders. The file ``lightning_habana.tsv`` lists the contents of the modules.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import pkgutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hpu_magic.errors import HPUError

__all__ = ["HabanaName", "as_lightning_habana", "counterparts", "requested"]

PACKAGE = "lightning_habana"
VARIABLE = "HPU_MAGIC_LIGHTNING_HABANA"


class HabanaName(NamedTuple):
    """A name in ``lightning_habana``, and its counterpart in this package."""

    name: str
    modules: tuple[str, ...]  # full names of the modules that contain the name
    here: str  # full name of the counterpart, followed by "()" if it must be called
    note: str  # how the counterpart differs


@functools.cache
def counterparts() -> tuple[HabanaName, ...]:
    """Read the table of names."""
    text = Path(__file__).with_name("lightning_habana.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        HabanaName(name, _modules(modules), here, note) for name, modules, here, note in rows
    )


def _modules(listed: str) -> tuple[str, ...]:
    """Return the modules' full names; the package itself exports the names in ``pytorch``, too."""
    below = [] if listed == "-" else listed.split()
    top = [PACKAGE] if not below or "pytorch" in below else []
    return (*top, *(f"{PACKAGE}.{module}" for module in below))


@functools.cache
def _tables() -> dict[str, dict[str, HabanaName]]:
    """Return the names in each module and each parent package."""
    tables: dict[str, dict[str, HabanaName]] = {}
    for entry in counterparts():
        for module in entry.modules:
            tables.setdefault(module, {})[entry.name] = entry
            tables.setdefault(module.rpartition(".")[0] or PACKAGE, {})
    return tables


class _Module(ModuleType):
    """A module whose attributes are looked up in the table of names."""

    def __getattr__(self, name: str) -> Any:
        entry = _tables()[self.__name__].get(name)
        if entry is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = pkgutil.resolve_name(entry.here.removesuffix("()"))
        return value() if entry.here.endswith("()") else value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Creates the modules in the table of names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _tables():
            return None
        package = any(other.startswith(f"{name}.") for other in _tables())
        return importlib.machinery.ModuleSpec(name, self, is_package=package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__all__"] = list(_tables()[module.__name__])


_FINDER = _Finder()


def as_lightning_habana() -> None:
    """Make ``import lightning_habana`` return the classes of ``hpu_magic.lightning``.

    Raises
    ------
    HPUError
        ``lightning_habana`` is installed.
    """
    if _FINDER in sys.meta_path:
        return
    if importlib.util.find_spec(PACKAGE) is not None:
        raise HPUError(
            f"{PACKAGE} is installed and takes precedence: remove it (pip uninstall "
            "lightning-habana), or import the classes from hpu_magic.lightning."
        )
    sys.meta_path.append(_FINDER)


def requested(value: str) -> None:
    """Call `as_lightning_habana` unless `value` is empty or "0"; warn if the call fails."""
    if value in ("", "0"):
        return
    try:
        as_lightning_habana()
    except HPUError as refusal:
        warnings.warn(f"{VARIABLE}={value}: {refusal}", stacklevel=3)
