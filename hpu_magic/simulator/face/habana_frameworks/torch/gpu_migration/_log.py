"""Log calls that are mapped, modified or have no counterpart, with the caller's source line."""

from __future__ import annotations

import linecache
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from habana_frameworks.torch import _flags

import torch

_VARIABLE = "GPU_MIGRATION_LOG_LEVEL"
_PRINTED, _WITHOUT_ARGUMENTS = 1, 3
_INSIDE = ("torch.", "habana_frameworks.", "importlib.", "functools", "contextlib")
_LONGEST = 60


def _level() -> int:
    text = os.environ.get(_VARIABLE, "").strip() or "0"
    if text not in ("0", "1", "2", "3"):
        raise ValueError(
            f"{_VARIABLE}={text!r} is not a log level; use 1 (log file and screen), 2 (log file) "
            "or 3 (log file, without changes to device arguments)."
        )
    return int(text)


LEVEL = _level()
_seen: set[tuple[str, int, str]] = set()


def folder() -> Path:
    """Return the folder for the migration logs."""
    return _flags.logs_folder() / "gpu_migration_logs"


def note(
    kind: str,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    became: str,
    *,
    argument: bool = False,
) -> None:
    """Log a call from code outside torch, once per source line.

    `kind` is a category of `hpu_magic.torch_cuda`, and `became` is the replacement of the call.
    `argument` indicates a call to one of torch's own functions, of which only the device arguments
    change.
    """
    if not LEVEL or (argument and LEVEL == _WITHOUT_ARGUMENTS) or torch.compiler.is_compiling():
        return
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") == __package__ and frame.f_back is not None:
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__"))
    if module == "torch" or module.startswith(_INSIDE):
        return
    file, line = frame.f_code.co_filename, frame.f_lineno
    key = (file, line, name)
    if key not in _seen:
        _seen.add(key)
        _write(
            f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {file}:{line}\n"
            f"    [context]: {linecache.getline(file, line, frame.f_globals).strip()}\n"
            f"    [{kind}]: {name}({shown(args, kwargs)}) --> {became}\n"
        )


def _write(entry: str) -> None:
    global LEVEL
    path = folder() / f"gpu_migration_{os.getpid()}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(entry)
    except OSError as error:
        LEVEL = 0
        warnings.warn(
            f"The GPU migration log cannot be written ({error}); set HABANA_LOGS to a writable "
            "folder.",
            stacklevel=5,
        )
        return
    if LEVEL == _PRINTED:
        print(entry, end="", file=sys.stderr)


def shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a call's arguments as text. Tensor values are omitted to avoid a host read."""
    keywords = (f"{name}={_short(value)}" for name, value in kwargs.items())
    return ", ".join([*map(_short, args), *keywords])


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"<{type(value).__name__} {list(value.shape)}>"
    if isinstance(value, torch.nn.Module):
        return f"<{type(value).__name__}>"
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
