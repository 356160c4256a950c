"""Compiles the engine into a directory, in a process of its own.

``python -m hpu_magic.simulator.build DIRECTORY UNITS FLAG...``
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .engine import NAME, SOURCES, units


def main(directory: str, place_of_units: str, flags: list[str]) -> None:
    """Compile every source into ``DIRECTORY/<name>.so`` with PyTorch's own build rules."""
    from torch.utils import cpp_extension

    cpp_extension.load(
        NAME,
        _write_units(Path(place_of_units)),
        extra_include_paths=[str(SOURCES)],
        extra_cflags=flags,
        build_directory=directory,
        verbose=True,
    )


def _write_units(place: Path) -> list[str]:
    """Write one source for each translation unit, the longest first, so that none comes last.

    Their place stays the same from build to build, as compiler caches want it.
    """
    written: list[tuple[int, str]] = []
    for unit, sources in units().items():
        path = place / f"{unit}.cpp"
        names = [source.relative_to(SOURCES).as_posix() for source in sources]
        private = place / f"{unit}.cpp.{os.getpid()}"
        private.write_text("".join(f"#include <{name}>\n" for name in names))
        os.replace(private, path)  # another process may be compiling what stands there
        written.append((sum(source.stat().st_size for source in sources), str(path)))
    return [path for _, path in sorted(written, reverse=True)]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
