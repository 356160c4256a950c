"""What the bridge prints when a process takes its card: the flags in force and the machine."""

from __future__ import annotations

import os
import sys

from habana_frameworks.torch import _flags

_WIDTH = 78


def show() -> None:
    """Print the configuration on standard error, where the vendor's bridge would.

    Rank 0 does, every rank with ``PT_HPU_PRINT_DEVICE_CONFIG``. A shell of IPython stays
    quiet unless that is set: the extension has told a notebook which device it has.
    """
    rank = os.environ.get("RANK") or "0"
    if _asked_for() or (rank == "0" and not _in_ipython()):
        print(_text(rank), file=sys.stderr)


def _text(rank: str) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "\n".join(
        [
            f" HPU PT BRIDGE CONFIGURATION ON RANK = {rank} ".center(_WIDTH, "="),
            *(f" {name} = {value}" for name, value in _flags.IN_FORCE.items()),
            " System Configuration ".center(_WIDTH, "-"),
            f" CPU cores : {os.cpu_count()}",
            f" CPU RAM   : {memory / 2**30:.0f} GB",
            "-" * _WIDTH,
        ]
    )


def _asked_for() -> bool:
    return os.environ.get("PT_HPU_PRINT_DEVICE_CONFIG", "").strip().lower() in ("1", "true")


def _in_ipython() -> bool:
    shells = sys.modules.get("IPython.core.interactiveshell")
    return shells is not None and shells.InteractiveShell.initialized()
