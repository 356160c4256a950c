"""Compiles the engine. Runs in a separate process, which ends when its standard input is closed.

The command-line arguments are DIRECTORY UNITS FLAG...
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import threading
from pathlib import Path

from hpu_magic.simulator.engine.sources import NAME, SOURCES, units


def main(directory: str, place_of_units: str, flags: list[str]) -> None:
    """Compile every source into ``DIRECTORY/<name>.so`` with PyTorch's own build rules."""
    from torch.utils import cpp_extension

    sanitizers = [flag for flag in flags if flag.startswith("-fsanitize=")]
    if sanitizers:
        # PyTorch loads the library after building it, so this process was started with the
        # sanitizers' library preloaded. Preloading it into the compiler would only waste time.
        os.environ.pop("LD_PRELOAD", None)
    cpp_extension.load(
        NAME,
        _write_units(Path(place_of_units)),
        extra_include_paths=[str(SOURCES)],
        extra_cflags=[*flags, *_short_paths(), f"-std=c++{language_standard()}"],
        extra_ldflags=sanitizers,
        build_directory=directory,
        verbose=True,
    )


def _short_paths() -> list[str]:
    """Return flags that keep the locations of the sources and of torch out of the binary."""
    import torch

    folders = {SOURCES: "native", Path(torch.__file__).parent: "torch"}
    return [f"-ffile-prefix-map={folder}={name}" for folder, name in folders.items()]


def language_standard() -> str:
    """Return the oldest C++ standard that PyTorch's headers support."""
    from torch.utils.cpp_extension import include_paths

    header = (Path(include_paths()[0]) / "ATen" / "ATen.h").read_text()
    oldest = min(re.findall(r"__cplusplus < 20(\d\d)\d\dL", header), default="17")
    return str(oldest)


def _write_units(place: Path) -> list[str]:
    """Write one source file for each translation unit, and return their paths, largest unit first.

    The names contain a digest of the contents. Therefore, concurrent builds of different sources
    use different files, and compiler caches see the same paths again.
    """
    written: list[tuple[int, str]] = []
    for unit, sources in units().items():
        names = [source.relative_to(SOURCES).as_posix() for source in sources]
        content = "".join(f"#include <{name}>\n" for name in names)
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        path = place / f"{unit}-{digest}.cpp"
        private = place / f"{path.name}.{os.getpid()}"
        private.write_text(content)
        os.replace(private, path)  # another process may be compiling the old file
        written.append((sum(source.stat().st_size for source in sources), str(path)))
    return [path for _, path in sorted(written, reverse=True)]


def _end_with_input() -> None:
    """End this process and the compilers when the parent process is killed."""
    os.read(0, 1)  # do not use sys.stdin, because its lock would still be held when Python exits
    os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
