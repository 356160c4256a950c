"""Import finders for the simulator's copies of the vendor's packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

FACE = Path(__file__).parent / "face"


def vendor_package() -> str | None:
    """Return the path of the vendor's ``habana_frameworks.torch``, or None if it is not installed.

    The existence of ``habana_frameworks`` is not sufficient, because it is a namespace package that
    other packages share.
    """
    package = PathFinder.find_spec("habana_frameworks")
    places = package.submodule_search_locations if package else None
    bridge = PathFinder.find_spec("habana_frameworks.torch", places) if places else None
    return bridge.origin if bridge else None


class _BridgeLoader(Loader):
    """Loads the bridge's module when PyTorch imports ``torch.hpu``."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module("habana_frameworks.torch.hpu")

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, because the module has already been executed."""


class _DistributionFinder(MetaPathFinder):
    """Finds the vendor's plug-in for ``importlib.metadata``.

    ``importlib.metadata`` is imported only when it is needed, because importing it is slow.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> None:
        """Return None, because this finder does not provide modules."""

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        from importlib.metadata import DistributionFinder

        from hpu_magic.simulator import distribution

        if vendor_package():
            return ()
        return distribution.offered(context or DistributionFinder.Context())


class _Finder(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname in ("habana_dataloader", "habana_frameworks", "torch_hpu"):
            return PathFinder.find_spec(fullname, [str(FACE)])
        if fullname == "torch.hpu":
            return ModuleSpec(fullname, _BridgeLoader())
        return None


def install_distributions() -> None:
    """Make the vendor's plug-in visible to version checks."""
    if not any(isinstance(finder, _DistributionFinder) for finder in sys.meta_path):
        sys.meta_path.append(_DistributionFinder())


def install_finder() -> None:
    """Append the finders to the existing ones, so that a real package takes precedence."""
    install_distributions()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
