"""The path, variables and cells of the notebook or session running in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hpu_magic.errors import HPUError, suggestion

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class Variables(NamedTuple):
    """The user's variables, including IPython's ``Out``, and the variables that IPython hides."""

    namespace: Mapping[str, Any]
    hidden: Mapping[str, Any]


def running_cell() -> int | None:
    """Return the number of the cell that is running; None outside of IPython."""
    return getattr(_shell(), "execution_count", None)


def variables() -> Variables:
    """Return the variables of the notebook or of the running script."""
    shell = _shell()
    if shell is not None:
        return Variables(shell.user_ns, shell.user_ns_hidden)
    return Variables(vars(sys.modules["__main__"]), {})


def values(names: Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the user's variables with these names; a mapping from names to values is returned.

    Raises
    ------
    HPUError
        There is no such variable; the message suggests similar names.
    """
    if names is None or isinstance(names, Mapping):
        return dict(names or {})
    namespace = variables().namespace
    for name in names:
        if name not in namespace:
            visible = [known for known in namespace if not known.startswith("_")]
            fix = suggestion(name, visible) or "define it first, or use another name."
            raise HPUError(f"Unknown variable {name!r}: {fix}")
    return {name: namespace[name] for name in names}


def name_of(value: Any) -> str | None:
    """Return the name of a variable that refers to this object, if any."""
    namespace, hidden = variables()
    names = (
        name
        for name, held in list(namespace.items())
        if held is value and name not in hidden and not name.startswith("_")
    )
    return next(names, None)


def cells() -> list[str]:
    """Return the source of the cells that have been run, indexed by cell number."""
    shell = _shell()
    return [] if shell is None else list(shell.user_ns.get("In", ()))


def run(line: str) -> Any:
    """Run a magic or a line of Python in the notebook and return the magic's result.

    Raises
    ------
    HPUError
        This process does not run a notebook.
    """
    shell = _shell()
    if shell is None:
        raise HPUError(f"{line!r} can only run in a notebook: write its code in the script.")
    if line.startswith("%"):
        magic, _, rest = line[1:].partition(" ")
        return shell.run_line_magic(magic, rest)
    return shell.ex(line)


def path(shell: InteractiveShell) -> str | None:
    """Return the path of the shell's notebook; None if it is unknown or this is a terminal."""
    if not hasattr(shell, "kernel"):
        return None
    # VS Code sets this variable, because its servers have generated session names.
    name = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return name if isinstance(name, str) and name else None


def _shell() -> Any:
    ipython = sys.modules.get("IPython.core.getipython")
    return None if ipython is None else ipython.get_ipython()
