"""``import lightning_habana`` for code that was written for it, on request.

``as_lightning_habana()``, or ``HPU_MAGIC_LIGHTNING_HABANA=1`` before ``hpu_magic.lightning`` is
imported, offers modules of those names behind all other finders. What they hold stands in
``lightning_habana.tsv``.
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
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hpu_magic.errors import HPUError

__all__ = ["Counterpart", "absence", "as_lightning_habana", "counterparts", "requested"]

PACKAGE = "lightning_habana"
VARIABLE = "HPU_MAGIC_LIGHTNING_HABANA"


@dataclass(frozen=True)
class Counterpart:
    """A name of ``lightning_habana`` and what stands for it.

    Attributes
    ----------
    name : str
        The name.
    modules : tuple of str
        The modules that have it, in full.
    here : str or None
        Its counterpart, as Python has it.
    note : str
        What differs, or why there is none.
    """

    name: str
    modules: tuple[str, ...]
    here: str | None
    note: str


@functools.cache
def counterparts() -> tuple[Counterpart, ...]:
    """Return the table."""
    text = Path(__file__).with_name("lightning_habana.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return tuple(
        Counterpart(name, _modules(modules), None if here == "-" else here, note)
        for name, modules, here, note in rows
    )


def _modules(listed: str) -> tuple[str, ...]:
    """Return full names; what ``pytorch`` has, the package itself has as well."""
    below = [] if listed == "-" else listed.split()
    top = [PACKAGE] if not below or "pytorch" in below else []
    return (*top, *(f"{PACKAGE}.{module}" for module in below))


@functools.cache
def _tables() -> dict[str, dict[str, Counterpart]]:
    """Return the names of each module, and modules for the packages between."""
    tables: dict[str, dict[str, Counterpart]] = {}
    for one in counterparts():
        for module in one.modules:
            tables.setdefault(module, {})[one.name] = one
            tables.setdefault(module.rpartition(".")[0] or PACKAGE, {})
    return tables


def absence(one: Counterpart) -> str:
    """Return the sentence about a name that has no counterpart."""
    return f"{PACKAGE}'s {one.name} has no counterpart in hpu_magic.lightning: {one.note}."


class _Module(ModuleType):
    """A module whose names are looked up when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        one = _tables()[self.__name__].get(name)
        if one is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if one.here is None:
            raise ImportError(absence(one))
        found = pkgutil.resolve_name(one.here.removesuffix("()"))
        return found() if one.here.endswith("()") else found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules of the table."""

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
        present = [name for name, one in _tables()[module.__name__].items() if one.here]
        vars(module)["__all__"] = present


_FINDER = _Finder()


def as_lightning_habana() -> None:
    """Let ``import lightning_habana`` give the classes of ``hpu_magic.lightning``.

    Raises
    ------
    HPUError
        ``lightning_habana`` is installed.
    """
    if _FINDER in sys.meta_path:
        return
    if importlib.util.find_spec(PACKAGE) is not None:
        raise HPUError(
            f"{PACKAGE} is installed and comes first: remove it (pip uninstall lightning-habana), "
            "or import the classes from hpu_magic.lightning."
        )
    sys.meta_path.append(_FINDER)


def requested(value: str) -> None:
    """Do what the environment asks for; where that is refused, warn.

    Parameters
    ----------
    value : str
        Of ``HPU_MAGIC_LIGHTNING_HABANA``; empty and ``"0"`` ask for nothing.
    """
    if value in ("", "0"):
        return
    try:
        as_lightning_habana()
    except HPUError as refusal:
        warnings.warn(f"{VARIABLE}={value}: {refusal}", stacklevel=3)
