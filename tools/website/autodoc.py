"""Hooks that adapt the members, signatures and docstrings that Sphinx shows."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from sphinx.application import Sphinx

from website.api import documented

_NAMED = re.compile(r"=([A-Z][A-Z_]+|_\w+|lambda [^,)]*)(?=[,)])")
_JOINED = re.compile(r"^(\w+(?:, \w+)+) : (.+)\n((?:    .*\n)+)", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hooks."""
    app.connect("autodoc-skip-member", _of_the_presentation)
    app.connect("autodoc-process-signature", _signature)
    # Before napoleon, whose priority is 500.
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _of_the_presentation(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Skip the methods with which a report displays itself."""
    from hpu_magic.runtime.present.table import Table

    return True if hasattr(Table, name) or name in ("html", "html_body") else None


def _signature(
    app: Sphinx, what: str, name: str, meant: Any, options: Any, arguments: str, returned: str
) -> Any:
    """Hide the signatures of results, which users do not create."""
    if what == "class" and not name.startswith("hpu_magic.lightning.") and name.count(".") > 1:
        return "", ""
    return arguments and (_with_values(meant, arguments), returned)


def _with_values(meant: Any, arguments: str) -> str:
    """Return a signature with values in place of private names, and dots in place of code."""

    def shown(named: re.Match[str]) -> str:
        value = vars(sys.modules[meant.__module__]).get(named[1], ...)
        return "=..." if value is ... or callable(value) else f"={value!r}"

    return _NAMED.sub(shown, arguments)


def _docstring(
    app: Sphinx, what: str, name: str, meant: Any, options: Any, lines: list[str]
) -> None:
    """Document a callable module by its call, and list attributes one by one."""
    if inspect.ismodule(meant):
        lines[:] = [*inspect.cleandoc(documented(name.rpartition(".")[2]).__doc__).splitlines(), ""]
    lines[:] = _JOINED.sub(_apart, "\n".join(lines)).split("\n")


def _apart(joined: re.Match[str]) -> str:
    # Napoleon separates names that share a description among parameters, but not attributes.
    names, kind, about = joined.groups()
    return "".join(f"{name} : {kind}\n{about}" for name in names.split(", "))
