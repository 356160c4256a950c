"""The variables and cells of the notebook or session that this process runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


class Variables(NamedTuple):
    """The user's variables.

    Attributes
    ----------
    namespace
        The values by name, and IPython's ``Out``.
    hidden
        Names in it that are not the user's.
    """

    namespace: Mapping[str, Any]
    hidden: Mapping[str, Any]


def variables() -> Variables:
    """Return the variables of the notebook, or of the script that runs."""
    shell = _shell()
    if shell is not None:
        return Variables(shell.user_ns, shell.user_ns_hidden)
    return Variables(vars(sys.modules["__main__"]), {})


def cells() -> list[str]:
    """Return the source of the cells run so far; the index is the number of the cell."""
    shell = _shell()
    return [] if shell is None else list(shell.user_ns.get("In", ()))


def _shell() -> Any:
    ipython = sys.modules.get("IPython.core.getipython")
    return None if ipython is None else ipython.get_ipython()
