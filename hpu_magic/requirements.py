"""Conflicts between installed libraries, according to the metadata of their distributions."""

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
"""Packages whose versions depend on each other, mapped to their distributions."""

_REQUIRED = {*LIBRARIES.values(), "torch", "huggingface-hub", "safetensors"}
_EXTRAS = ("", "torch")  # general requirements, and those for training
# Maps each distribution to its name and to the oldest release that the extension supports.
_FRONT_ENDS = {"jupyterlab": ("JupyterLab", "4.2"), "notebook": ("Notebook", "7.2")}


@dataclass(frozen=True)
class Conflict:
    """A library that does not support the installed versions of some of its requirements."""

    library: str  # the distribution and its version
    needed: dict[str, str]  # installed versions by requirement: ``transformers>=4.55.0,<4.56.0``

    def __str__(self) -> str:
        unmet = [f"{limits} ({version} is installed)" for limits, version in self.needed.items()]
        *others, last = unmet
        named = f"{', '.join(others)} and {last}" if others else last
        arguments = " ".join(f'"{limits}"' for limits in self.needed)
        return (
            f"{self.library} requires {named}: run %pip install {arguments}, then restart the "
            "kernel."
        )


def conflicts(libraries: Collection[str] = tuple(LIBRARIES.values())) -> list[Conflict]:
    """Return the libraries that conflict with installed versions, in the order of `libraries`."""
    found = []
    for library in libraries:
        needed = dict(_unmet(library))
        if needed:
            found.append(Conflict(f"{library} {installed_version(library)}", needed))
    return found


def old_front_ends(version_of: Callable[[str], str | None]) -> list[str]:
    """Return a sentence, including the fix, for each front end that is too old for the extension.

    `version_of` returns the version of a distribution, or None if it is not installed.
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
                "switch and the charts of panels may be missing or broken; commands work. Run "
                f'pip install -U "{distribution}>={oldest}" and restart it.'
            )
    return found


def vllm_conflict(version_of: Callable[[str], str | None]) -> str | None:
    """Return a sentence, including the fix, if vLLM's Gaudi plugin cannot use the packages.

    A release of the plugin has the number of the vLLM release that it requires (README of
    vllm-gaudi). Builds from a repository do not have a release number and are not compared. The
    plugin also reads the version of neural-compressor-pt, although it does not declare this
    requirement. `version_of` returns the version of a distribution, or None if it is not installed.
    """
    if version_of("vllm-gaudi") and not version_of("neural-compressor-pt"):
        return (
            "vllm-gaudi requires neural-compressor-pt, which is not installed: run %pip install "
            "neural-compressor-pt, then restart the kernel."
        )
    plugin, vllm = (_release(version_of(name)) for name in ("vllm-gaudi", "vllm"))
    if plugin is None or vllm is None or plugin == vllm:
        return None
    return (
        f"vllm-gaudi {plugin} requires vLLM {plugin}, but vLLM {vllm} is installed: install "
        f"vllm=={plugin}, built with VLLM_TARGET_DEVICE=empty."
    )


def _release(version: str | None) -> str | None:
    """Return the version without its local label, or None if it is not a release."""
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version or "")
    except InvalidVersion:
        return None
    return None if parsed.is_devrelease else parsed.base_version


def _unmet(library: str) -> Iterator[tuple[str, str]]:
    """Yield the unmet requirements of a library, with the installed versions."""
    from importlib import metadata  # these imports are slow

    from packaging.requirements import InvalidRequirement, Requirement

    try:
        lines = metadata.requires(library) or ()
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        try:
            needed = Requirement(line)
        except InvalidRequirement:
            continue  # a requirement in an obsolete format
        marker = needed.marker
        if needed.name.lower().replace("_", "-") not in _REQUIRED or (
            marker is not None and not any(marker.evaluate({"extra": extra}) for extra in _EXTRAS)
        ):
            continue
        installed = installed_version(needed.name)
        # If the package is not installed, its import raises an error that says so.
        if installed is not None and not needed.specifier.contains(installed, prereleases=True):
            limits = sorted(map(str, needed.specifier), key=lambda limit: limit.startswith("<"))
            yield needed.name + ",".join(limits), installed


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
