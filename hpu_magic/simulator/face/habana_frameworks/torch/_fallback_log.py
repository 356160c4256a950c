"""Log of CPU fallbacks, written if ``LOG_LEVEL_PT_FALLBACK`` is 0 or 1.

The log file is ``pytorch_log.txt`` in the folder set by ``HABANA_LOGS`` (by default
``~/.habana_logs``), or in its subfolder ``$ID`` if the launcher sets ``ID``. If ``ENABLE_CONSOLE``
is set, log lines are also printed to standard error.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

from habana_frameworks.torch import _flags
from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId, Parameters

_VARIABLE = "LOG_LEVEL_PT_FALLBACK"
_writable = True


def install() -> None:
    """Start logging if ``LOG_LEVEL_PT_FALLBACK`` enables it."""
    if os.environ.get(_VARIABLE, "").strip() in ("0", "1"):
        EventDispatcher.instance().subscribe(EventId.CPU_FALLBACK, _log)


def _path() -> Path:
    return _flags.logs_folder() / os.environ.get("ID", "") / "pytorch_log.txt"


def _log(timestamp: int, parameters: Parameters) -> None:
    event = dict(parameters)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp / 1e9))
    place = f" at {event['file']}:{event['line']}" if "file" in event else ""
    entry = f"[{when}][PT_FALLBACK][debug] CPU fallback {event['name']}{place}\n"
    if _flags.is_on("ENABLE_CONSOLE"):
        print(entry, end="", file=sys.stderr, flush=True)
    _write(entry)


def _write(entry: str) -> None:
    global _writable
    if not _writable:
        return
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        with _path().open("a", encoding="utf-8") as log:
            log.write(entry)
    except OSError as error:
        _writable = False
        warnings.warn(
            f"The CPU fallback log cannot be written ({error}); set HABANA_LOGS to a writable "
            "folder.",
            stacklevel=2,
        )
