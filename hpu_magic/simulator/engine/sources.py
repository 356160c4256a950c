"""Sources and translation units of the engine."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[1] / "native"
NAME = "hpu_magic_engine"

_SMALL = 23 << 10
"""Bytes of sources in a folder below which mostly the headers determine the compilation time."""


def units() -> dict[str, list[Path]]:
    """Return the sources of each translation unit, which includes PyTorch's headers once.

    Each folder is a unit; all small folders together are one unit.
    """
    folders: dict[str, list[Path]] = {}
    for source in sorted(SOURCES.rglob("*.cpp")):
        folders.setdefault(source.relative_to(SOURCES).with_suffix("").parts[0], []).append(source)
    by_unit: dict[str, list[Path]] = {}
    for name, sources in folders.items():
        small = sum(source.stat().st_size for source in sources) < _SMALL
        by_unit.setdefault("small" if small else name, []).extend(sources)
    return by_unit
