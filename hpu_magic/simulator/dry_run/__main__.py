"""Runs one script or cell: ``python -m hpu_magic.simulator.dry_run [train.py ARGUMENTS]``.

The environment variable ``HPU_MAGIC_DRY_RUN`` contains the options; see `start.Options`.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from hpu_magic.simulator.activation import SWITCH, activate
from hpu_magic.simulator.dry_run import cell, start
from hpu_magic.simulator.dry_run.steps import RunEnded

_INTERRUPTED = 130  # the usual exit status


def main() -> None:
    """Run the script or cell, write the record of the run, and exit with the script's status."""
    options = start.become_owner()
    try:
        activate(announce=False)
    except (RuntimeError, ValueError) as refused:
        start.refuse(str(refused))
        sys.exit(2)
    os.environ[SWITCH] = "1"
    if options.cell is not None:
        status, ended = _run(cell.NAME, lambda: cell.run(**options.cell))
    else:
        status, ended = _run(*_script(sys.argv[1:]))
    start.leave(status, ended)


def _script(arguments: list[str]) -> tuple[str, Any]:
    """Prepare to run a script with its arguments; return its path and a function that runs it."""
    sys.argv = arguments
    path = Path(arguments[0]).resolve()
    sys.path[0] = str(path.parent)
    return str(path), lambda: runpy.run_path(str(path), run_name="__main__")


def _run(file: str, run: Any) -> tuple[int, dict[str, Any]]:
    """Run the code in a file, and return its exit status and how it ended."""
    try:
        run()
    except RunEnded:
        return 0, {"how": "stopped"}
    except SystemExit as left:
        return _status(left), {"how": "exit"}
    except BaseException as error:  # noqa: BLE001 - reported like an uncaught exception
        frames = _frames_of(file, error.__traceback__)
        traceback.print_exception(type(error), error, frames[0] if frames else None)
        ended = {"how": "error", "type": type(error).__name__, "message": str(error)[:2000]}
        line = (file, frames[-1].tb_lineno) if frames else None
        if isinstance(error, SyntaxError) and error.filename is not None:
            line = (error.filename, error.lineno or 0)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1, {**ended, "line": line}
    return 0, {"how": "end"}


def _frames_of(file: str, frames: TracebackType | None) -> list[TracebackType]:
    """Return the parts of a traceback whose frames run code from a file."""
    found = []
    while frames is not None:
        if frames.tb_frame.f_code.co_filename.startswith(file):
            found.append(frames)
        frames = frames.tb_next
    return found


def _status(left: SystemExit) -> int:
    if left.code is None or isinstance(left.code, int):
        return left.code or 0
    print(left.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
