"""The log of CPU fallbacks, for ``LOG_LEVEL_PT_FALLBACK`` of 0 or 1: a line for each.

It is ``pytorch_log.txt`` below ``HABANA_LOGS``, by default ``~/.habana_logs``, in a folder of the
rank where the launcher gives it an ``ID``; ``ENABLE_CONSOLE`` has it on standard error too.
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
    """Log from now on, if the environment asks for it."""
    if os.environ.get(_VARIABLE, "").strip() in ("0", "1"):
        EventDispatcher.instance().subscribe(EventId.CPU_FALLBACK, _note)


def path() -> Path:
    """Return the file."""
    logs = Path(os.environ.get("HABANA_LOGS") or Path.home() / ".habana_logs")
    return logs / os.environ.get("ID", "") / "pytorch_log.txt"


def _note(timestamp: int, parameters: Parameters) -> None:
    said = dict(parameters)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp / 1e9))
    place = f" at {said['file']}:{said['line']}" if "file" in said else ""
    entry = f"[{when}][PT_FALLBACK][debug] CPU fallback {said['name']}{place}\n"
    if _flags.is_on("ENABLE_CONSOLE"):
        print(entry, end="", file=sys.stderr, flush=True)
    _write(entry)


def _write(entry: str) -> None:
    global _writable
    if not _writable:
        return
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        with path().open("a", encoding="utf-8") as log:
            log.write(entry)
    except OSError as error:
        _writable = False
        warnings.warn(
            f"The log of CPU fallbacks cannot be written ({error}); set HABANA_LOGS to a folder "
            "that can.",
            stacklevel=2,
        )
