"""Metadata of the vendor's plug-in, for programs that check its version.

The import finder provides the metadata to ``importlib.metadata``, and therefore to pip, without any
files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path

from hpu_magic.simulator.release import PLUGIN

NAME = "habana-torch-plugin"

_HERE = Path(__file__).parents[2]
_TEXTS = {
    "METADATA": f"""\
Metadata-Version: 2.1
Name: {NAME}
Version: {PLUGIN}
Summary: Simulated by hpu_magic: no Gaudi software is installed
""",
    "top_level.txt": "habana_frameworks\ntorch_hpu\n",
}


class SimulatedPlugin(Distribution):
    """Metadata of the simulated release, whose version contains ``simulated``. It has no files."""

    def read_text(self, filename: str) -> str | None:
        """Return the text of a metadata file, or None if there is no such file."""
        return _TEXTS.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """Return the path that a file of the distribution would have."""
        return _HERE / path


def offered(context: DistributionFinder.Context) -> Iterator[Distribution]:
    """Yield the plug-in if a search for it, or for all distributions, includes hpu_magic's folder.

    Searches of other folders, such as the target of ``pip install --target``, do not find the
    plug-in.
    """
    if context.name is not None and _normal(context.name) != _normal(NAME):
        return
    if _is_searched(context.path) and not _installed():
        yield SimulatedPlugin()


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _is_searched(path: Sequence[str]) -> bool:
    return any(Path(place or os.curdir).resolve() == _HERE.resolve() for place in path)


def _installed() -> bool:
    """Return whether the real distribution is on ``sys.path``."""
    context = DistributionFinder.Context(name=NAME)
    return next(iter(MetadataPathFinder.find_distributions(context)), None) is not None
