"""Compiles the engine into a directory, in a process of its own.

``python -m hpu_magic.simulator.build DIRECTORY FLAG...``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from .engine import NAME, SOURCES


def main(directory: str, flags: list[str]) -> None:
    """Compile every source into ``DIRECTORY/<name>.so`` with PyTorch's own build rules."""
    from torch.utils import cpp_extension

    cpp_extension.load(
        NAME,
        [str(source) for source in sorted(SOURCES.rglob("*.cpp"))],
        extra_include_paths=[str(SOURCES)],
        extra_cflags=[*flags, f"-std=c++{language_standard()}"],
        build_directory=directory,
        verbose=True,
    )


def language_standard() -> str:
    """Oldest C++ that PyTorch's headers take, so that older releases compile the engine too."""
    from torch.utils.cpp_extension import include_paths

    header = (Path(include_paths()[0]) / "ATen" / "ATen.h").read_text()
    oldest = min(re.findall(r"__cplusplus < 20(\d\d)\d\dL", header), default="17")
    return str(oldest)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
