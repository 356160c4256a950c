"""What the engine is compiled from."""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parents[1] / "native"
NAME = "hpu_magic_engine"
FLAGS = ["-O2", "-DNDEBUG"]  # NDEBUG as in PyTorch's own build: some of its headers differ by it


def units() -> dict[str, list[Path]]:
    """Sources of each translation unit: a folder is one, so PyTorch's headers are read once."""
    found: dict[str, list[Path]] = {}
    for source in sorted(SOURCES.rglob("*.cpp")):
        found.setdefault(source.relative_to(SOURCES).with_suffix("").parts[0], []).append(source)
    return found
