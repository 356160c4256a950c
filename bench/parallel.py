"""Round-trip time of a cell on four workers, relative to ipyparallel's %%px on four engines."""

from __future__ import annotations

from collections.abc import Iterator

import ipyparallel
from IPython.core.interactiveshell import InteractiveShell

from bench.harness import Figure, in_turn, quiet_ratio

WORKERS = 4
ROUNDS = 200


def figures() -> Iterator[Figure]:
    """Yield the round-trip time of an empty cell."""
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "hpu_magic")
    shell.run_line_magic("hpu_workers", f"on --cards {WORKERS}")
    with ipyparallel.Cluster(n=WORKERS, engines="local", log_level=50) as engines:
        view = engines[:]
        view.block = True
        view.activate()
        value = quiet_ratio(
            in_turn(
                lambda: shell.run_cell_magic("px", "", "pass"),
                lambda: shell.run_cell_magic("hpu_workers", "", "pass"),
                ROUNDS,
            )
        )
    shell.run_line_magic("hpu_workers", "off")
    yield Figure(f"%%hpu_workers, empty cell on {WORKERS} workers / %%px", value, "ratio", 1.2)
