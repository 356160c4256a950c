"""What the engine is compiled from."""

from __future__ import annotations

import os
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "native"
NAME = "hpu_magic_engine"
FLAGS = ["-O2", "-DNDEBUG"]  # NDEBUG as in PyTorch's own build: some of its headers differ by it
# `make sanitize` builds another engine, with checks of memory, arithmetic, containers and locks.
if _SANITIZERS := os.environ.get("HPU_MAGIC_SANITIZE"):
    FLAGS += [
        f"-fsanitize={_SANITIZERS}",
        "-fno-sanitize-recover=all",
        "-fno-sanitize=vptr",  # asks for type information that PyTorch keeps to itself
        "-fno-omit-frame-pointer",
        "-O1",
        "-g1",
        "-D_GLIBCXX_ASSERTIONS",
        "-DHPU_MAGIC_CHECK_LOCKS",
    ]


_SMALL = 23 << 10
"""Bytes of a folder's sources below which its compilation is little but that of the headers."""


def units() -> dict[str, list[Path]]:
    """Sources of each translation unit, in which PyTorch's headers are read once.

    A folder is one, and all the small folders are one together.
    """
    folders: dict[str, list[Path]] = {}
    for source in sorted(SOURCES.rglob("*.cpp")):
        folders.setdefault(source.relative_to(SOURCES).with_suffix("").parts[0], []).append(source)
    found: dict[str, list[Path]] = {}
    for name, sources in folders.items():
        small = sum(source.stat().st_size for source in sources) < _SMALL
        found.setdefault("small" if small else name, []).extend(sources)
    return found
