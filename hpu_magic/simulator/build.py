"""Compiles the engine into a directory, in a process of its own.

``python -m hpu_magic.simulator.build DIRECTORY FLAG...``
"""

from __future__ import annotations

import sys

from .engine import NAME, SOURCES


def main(directory: str, flags: list[str]) -> None:
    """Compile every source into ``DIRECTORY/<name>.so`` with PyTorch's own build rules."""
    from torch.utils import cpp_extension

    cpp_extension.load(
        NAME,
        [str(source) for source in sorted(SOURCES.rglob("*.cpp"))],
        extra_include_paths=[str(SOURCES)],
        extra_cflags=flags,
        build_directory=directory,
        verbose=True,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
