"""The engine's sources and translation units."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[1] / "native"
NAME = "hpu_magic_engine"

_SMALL = 23 << 10
"""Folder size in bytes below which PyTorch's headers take up most of the compilation time."""


def is_clone() -> bool:
    """Return whether this package is imported from a clone instead of an installed wheel."""
    return (SOURCES.parents[2] / "pyproject.toml").exists()


def units() -> dict[str, list[Path]]:
    """Return the sources of each translation unit. Each unit includes PyTorch's headers only once.

    Each folder is a unit, except that all small folders together form a single unit.
    """
    folders: dict[str, list[Path]] = {}
    for source in sorted(SOURCES.rglob("*.cpp")):
        folders.setdefault(source.relative_to(SOURCES).with_suffix("").parts[0], []).append(source)
    by_unit: dict[str, list[Path]] = {}
    for name, sources in folders.items():
        small = sum(source.stat().st_size for source in sources) < _SMALL
        by_unit.setdefault("small" if small else name, []).extend(sources)
    return by_unit
