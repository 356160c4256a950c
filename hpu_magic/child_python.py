"""Start hpu_magic's own Python processes, which do not run the user's code.

These processes import only from this environment. ``python -m`` and ``python -c`` would search the
working directory first, which may contain a downloaded ``torch.py``, even when started by root.
``python -P`` requires Python 3.11, and ``python -I`` ignores ``PYTHONPATH``, which may contain
torch.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[1]
# On the path, this package comes after the standard library and before other copies of it.
# Until the path is set, the program may only import modules that Python imports at startup.
_PROGRAM = """\
import sys
sys.path[:] = [each for each in sys.path if each[:1] == "/"]
places = [i for i, each in enumerate(sys.path) if each.endswith("-packages")]
sys.path.insert(min(places, default=len(sys.path)), sys.argv.pop(1))
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of this environment in any working directory.

    The process must also be started with the variables that `environment` returns.
    """
    return [sys.executable, "-c", _PROGRAM, str(_ROOT), module, *map(str, arguments)]


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables with relative and world-writable folders removed from ``PYTHONPATH``.

    An empty entry, which means the working directory, is also removed.
    """
    kept = dict(variables)
    folders = kept.pop("PYTHONPATH", "").split(os.pathsep)
    if safe := [folder for folder in folders if os.path.isabs(folder) and not _open_to_all(folder)]:
        kept["PYTHONPATH"] = os.pathsep.join(safe)
    return kept


def _open_to_all(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & stat.S_IWOTH)
    except OSError:
        return True  # another user might create it
