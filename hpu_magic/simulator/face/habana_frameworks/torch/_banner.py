"""Banner that lists the flags and the machine, printed when a process acquires its card."""

from __future__ import annotations

import os
import sys

from habana_frameworks.torch import _flags

_WIDTH = 78


def show() -> None:
    """Print the configuration to standard error, like the vendor's bridge.

    Only rank 0 prints the banner, unless ``PT_HPU_PRINT_DEVICE_CONFIG`` is set. In IPython shells,
    no rank prints it without this flag, because the extension has already reported the device.
    """
    rank = os.environ.get("RANK") or "0"
    if _flags.is_on("PT_HPU_PRINT_DEVICE_CONFIG") or (rank == "0" and not _in_ipython()):
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


def _in_ipython() -> bool:
    shells = sys.modules.get("IPython.core.interactiveshell")
    return shells is not None and shells.InteractiveShell.initialized()
