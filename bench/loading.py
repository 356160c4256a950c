"""CPU time to load the extension and the cached engine in a new process."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.harness import Figure, fresh_process, quiet_ratio

LOAD_EXTENSION = """
from time import process_time
start = process_time()
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
started = process_time()
shell.run_line_magic("load_ext", "hpu_magic")
loaded = process_time()
print()
print(started - start, loaded - started)
"""

IMPORT_TORCH = """
from time import process_time
start = process_time()
import torch
taken = process_time() - start
print()
print(taken)
"""


def timed(code: str, **environ: str) -> list[float]:
    """Run code in a new process, and return the times on the last line that it prints.

    Bytecode is always written. Otherwise, in a new checkout, each process would also measure the
    time to compile the project's sources.
    """
    printed = fresh_process(code, **{"PYTHONDONTWRITEBYTECODE": "", **environ})
    return [float(word) for word in printed.splitlines()[-1].split()]


def figures() -> Iterator[Figure]:
    # If this variable is set, the simulator is loaded before the shell, and the times overlap.
    unset = {"HPU_MAGIC_SIMULATOR": ""}
    timed(LOAD_EXTENSION, **unset)
    loads = [timed(LOAD_EXTENSION, **unset) for _ in range(11)]
    share = statistics.median(loaded / started for started, loaded in loads)
    yield Figure("%load_ext hpu_magic / start of an IPython shell", share, "ratio", 0.75)

    imports = [
        (
            timed(IMPORT_TORCH, HPU_MAGIC_SIMULATOR="0")[0],
            timed(IMPORT_TORCH, HPU_MAGIC_SIMULATOR="1")[0],
        )
        for _ in range(10)
    ]
    with_engine = quiet_ratio(imports[1:])
    yield Figure("import torch, with the cached engine / without", with_engine, "ratio", 1.25)
