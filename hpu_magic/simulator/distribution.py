"""The vendor's plug-in as an installed distribution, for those who ask which version there is.

Nothing is written: the finder hands it to ``importlib.metadata``, and so to pip.
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
    """Metadata of the simulated release; its version says ``simulated``. It has no files."""

    def read_text(self, filename: str) -> str | None:
        """Return the metadata, and which packages it stands for; there is no other text."""
        return _TEXTS.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """Return where a file of the distribution would be."""
        return _HERE / path


def offered(context: DistributionFinder.Context) -> Iterator[Distribution]:
    """Yield the plug-in to those who ask for it, or for all, where hpu_magic itself is installed.

    A search of other folders, as for what ``pip install --target`` put there, does not find it.
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
    """Whether the real distribution is anywhere on ``sys.path``."""
    context = DistributionFinder.Context(name=NAME)
    return next(iter(MetadataPathFinder.find_distributions(context)), None) is not None
