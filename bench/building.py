"""Time to compile the engine, relative to the time to compile a minimal torch extension."""

from __future__ import annotations

import os
import statistics
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Figure, seconds


def figures() -> Iterator[Figure]:
    # A compiler cache would hide the actual compilation time.
    os.environ["CCACHE_DISABLE"] = "1"
    from hpu_magic.simulator.engine import build

    def engine() -> None:
        with build() as library:
            assert library.exists()

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "one.cpp"
        source.write_text("#include <torch/extension.h>\n")

        def one_file() -> None:
            subprocess.run(command(source), cwd=folder, check=True)

        one_file()  # loads the headers into memory
        before, all_files, after = seconds(one_file), seconds(engine), seconds(one_file)
    ratio = all_files / statistics.fmean((before, after))
    yield Figure("engine's compilation / one file with torch/extension.h", ratio, "ratio", 5.0)


def command(source: Path) -> list[str]:
    """Return the command that PyTorch's builder uses to compile a file of the engine."""
    from torch.utils import cpp_extension

    from hpu_magic.simulator.engine.compile_units import language_standard
    from hpu_magic.simulator.engine.flags import FLAGS

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    return [
        cpp_extension.get_cxx_compiler(),
        *(word for include in includes for word in ("-isystem", include)),
        "-fPIC",
        f"-std=c++{language_standard()}",
        *FLAGS,
        "-c",
        str(source),
        "-o",
        f"{source}.o",
    ]
