"""Ending a process that is beyond help, with a note of why."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def dump_device_state_and_terminate(msg: str, flags: int = 0) -> NoReturn:
    """Write `msg` to the logs and end the process at once, with status 1.

    The logs are ``dfa_api.txt`` and ``synapse_runtime.log`` below ``HABANA_LOGS``, by default
    ``~/.habana_logs``. The state of the hardware, which `flags` choose from, is not dumped: a
    simulated card has none.
    """
    folder = Path(os.environ.get("HABANA_LOGS") or Path.home() / ".habana_logs")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("dfa_api.txt", "synapse_runtime.log"):
        with (folder / name).open("a", encoding="utf-8") as log:
            log.write(f"{msg}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
