"""Which installed libraries do not go together, by what they say of each other themselves.

Their distributions name the versions that they work with; none of them is imported to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

LIBRARIES = {
    "optimum.habana": "optimum-habana",
    "optimum": "optimum",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "diffusers": "diffusers",
    "peft": "peft",
    "trl": "trl",
    "sentence_transformers": "sentence-transformers",
    "tokenizers": "tokenizers",
}
"""Packages whose versions depend on each other's, and the distributions that bring them."""

_REQUIRED = {*LIBRARIES.values(), "torch", "huggingface-hub", "safetensors"}
_EXTRAS = ("", "torch")  # what they need in any case, and to train
# Distribution -> how it is called, and its first release that the extension is made for.
_FRONT_ENDS = {"jupyterlab": ("JupyterLab", "4.2"), "notebook": ("Notebook", "7.2")}


@dataclass(frozen=True)
class Conflict:
    """A library, and installed ones that it does not work with.

    Attributes
    ----------
    library : str
        Its distribution and version.
    needed : dict of str to str
        The version that is installed, by what the library works with, as pip takes it:
        ``transformers>=4.55.0,<4.56.0``.
    """

    library: str
    needed: dict[str, str]

    def __str__(self) -> str:
        found = [f"{limits} ({version} is installed)" for limits, version in self.needed.items()]
        *others, last = found
        named = f"{', '.join(others)} and {last}" if others else last
        asked = " ".join(f'"{limits}"' for limits in self.needed)
        return (
            f"{self.library} works with {named}: run %pip install {asked}, then restart the kernel."
        )


def conflicts(libraries: Collection[str] = tuple(LIBRARIES.values())) -> list[Conflict]:
    """Return the conflicts that distributions have with what is installed, in their order.

    Parameters
    ----------
    libraries : collection of str
        Names of distributions; those that are not installed have none.
    """
    found = []
    for library in libraries:
        needed = dict(_unmet(library))
        if needed:
            found.append(Conflict(f"{library} {installed_version(library)}", needed))
    return found


def too_old_a_front_end(version_of: Callable[[str], str | None]) -> list[str]:
    """Say which front ends are too old for the extension, what may be missing, and the fix.

    Parameters
    ----------
    version_of : callable
        Returns the version of a distribution, None where it is not installed.
    """
    from packaging.version import InvalidVersion, Version

    found = []
    for distribution, (name, oldest) in _FRONT_ENDS.items():
        version = version_of(distribution)
        try:
            old = version is not None and Version(version) < Version(oldest)
        except InvalidVersion:
            continue
        if old:
            found.append(
                f"{name} {version} is older than {oldest}: the sidebar, the status bar, the mode "
                "switch and charts of panels may be missing or broken in it; commands work. Run "
                f'pip install -U "{distribution}>={oldest}" and start it anew.'
            )
    return found


def _unmet(library: str) -> Iterator[tuple[str, str]]:
    """Yield what a library works with, and the other version that is installed."""
    from importlib import metadata  # slow to import, as the next

    from packaging.requirements import InvalidRequirement, Requirement

    try:
        lines = metadata.requires(library) or ()
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        try:
            needed = Requirement(line)
        except InvalidRequirement:
            continue  # in a form of the past
        marker = needed.marker
        if needed.name.lower().replace("_", "-") not in _REQUIRED or (
            marker is not None and not any(marker.evaluate({"extra": one}) for one in _EXTRAS)
        ):
            continue
        installed = installed_version(needed.name)
        # What is not there at all is told by an import.
        if installed is not None and not needed.specifier.contains(installed, prereleases=True):
            limits = sorted(map(str, needed.specifier), key=lambda one: one.startswith("<"))
            yield needed.name + ",".join(limits), installed


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
