"""Terminate a process after a fatal error."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from habana_frameworks.torch import _flags


def dump_device_state_and_terminate(msg: str, flags: int = 0) -> NoReturn:
    """Write `msg` to the logs, and exit the process immediately with status 1.

    The logs are ``dfa_api.txt`` and ``synapse_runtime.log`` in ``HABANA_LOGS``, which defaults to
    ``~/.habana_logs``. `flags` selects the hardware state to dump; simulated cards have no such
    state.
    """
    folder = _flags.logs_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("dfa_api.txt", "synapse_runtime.log"):
        with (folder / name).open("a", encoding="utf-8") as log:
            log.write(f"{msg}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
