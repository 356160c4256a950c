"""Python processes that hpu_magic starts for itself, which run none of the user's code.

They import from this environment alone. ``python -m`` and ``python -c`` would look into the working
directory first, where a downloaded ``torch.py`` may be, and an administrator may be root.
``python -P`` needs Python 3.11, and ``python -I`` would ignore ``PYTHONPATH``, where torch may be.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[1]
# The package comes after the standard library and before another installation of it. Until the path
# is set, only modules may be imported that Python has imported at its start.
_PROGRAM = """\
import sys
sys.path[:] = [each for each in sys.path if each[:1] == "/"]
places = [i for i, each in enumerate(sys.path) if each.endswith("-packages")]
sys.path.insert(min(places, default=len(sys.path)), sys.argv.pop(1))
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of this environment, whatever the working directory.

    The process needs `environment` as well.
    """
    return [sys.executable, "-c", _PROGRAM, str(_ROOT), module, *map(str, arguments)]


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables whose ``PYTHONPATH`` has no folder that all users may write to.

    It has no relative folder either; an empty one means the working directory.
    """
    kept = dict(variables)
    folders = kept.pop("PYTHONPATH", "").split(os.pathsep)
    if safe := [each for each in folders if os.path.isabs(each) and not _open_to_all(each)]:
        kept["PYTHONPATH"] = os.pathsep.join(safe)
    return kept


def _open_to_all(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & stat.S_IWOTH)
    except OSError:
        return True  # somebody may make it
