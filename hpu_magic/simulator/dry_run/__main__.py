"""Runs one script: ``python -m hpu_magic.simulator.dry_run train.py ARGUMENTS``.

The environment variable ``HPU_MAGIC_DRY_RUN`` contains the options; see `start.Options`.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from hpu_magic.simulator.activation import SWITCH, activate
from hpu_magic.simulator.dry_run.start import finish, refuse
from hpu_magic.simulator.dry_run.steps import RunEnded


def main() -> None:
    """Run the script, write the record, and exit with the script's status."""
    script, *arguments = sys.argv[1:]
    try:
        activate(announce=False)
    except (RuntimeError, ValueError) as refused:
        refuse(str(refused))
        sys.exit(2)
    os.environ[SWITCH] = "1"
    status, ended = _run(script, arguments)
    finish(ended)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # destroying models and datasets would only take time


def _run(script: str, arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Run the script and return its exit status and how it ended."""
    sys.argv = [script, *arguments]
    path = Path(script).resolve()
    sys.path[0] = str(path.parent)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except RunEnded:
        return 0, {"how": "stopped"}
    except SystemExit as left:
        return _status(left), {"how": "exit"}
    except BaseException as error:  # noqa: BLE001 - reported like an uncaught exception
        shown = error.__traceback__
        while shown is not None and not shown.tb_frame.f_code.co_filename.startswith(str(path)):
            shown = shown.tb_next
        traceback.print_exception(type(error), error, shown)
        return 1, {"how": "error", "type": type(error).__name__, "message": str(error)[:2000]}
    return 0, {"how": "end"}


def _status(left: SystemExit) -> int:
    if left.code is None or isinstance(left.code, int):
        return left.code or 0
    print(left.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
