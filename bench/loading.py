"""What loading the extension and the cached engine costs a fresh process."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from .harness import Figure, fresh_process, median_difference

LOAD_EXTENSION = """
from time import perf_counter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
start = perf_counter()
shell.run_line_magic("load_ext", "hpu_magic")
taken = perf_counter() - start
print()
print(taken)
"""

IMPORT_TORCH = """
from time import perf_counter
start = perf_counter()
import torch
taken = perf_counter() - start
print()
print(taken)
"""


def timed(code: str, **environ: str) -> float:
    return float(fresh_process(code, **environ).splitlines()[-1])


def figures() -> Iterator[Figure]:
    timed(LOAD_EXTENSION)
    loads = [timed(LOAD_EXTENSION) for _ in range(11)]
    yield Figure("%load_ext hpu_magic", statistics.median(loads) * 1e3, "ms", 50)

    imports = [
        tuple(timed(IMPORT_TORCH, HPU_MAGIC_SIMULATOR=switch) for switch in ("0", "1"))
        for _ in range(10)
    ]
    added = median_difference(imports[1:])
    yield Figure("cached engine, added to import torch", added, "s", 0.5)
