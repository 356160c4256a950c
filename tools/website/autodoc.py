"""Hooks that adapt members, signatures and docstrings for the site."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from sphinx.application import Sphinx

from website.api import documented

_NAMED = re.compile(r"=((?:\w+\.)*(?:[A-Z][A-Z_]+|_\w+)|lambda [^,)]*)(?=[,)])")
_JOINED = re.compile(r"^(\w+(?:, \w+)+) : (.+)\n((?:    .*\n)+)", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hooks."""
    app.connect("autodoc-skip-member", _skipped)
    app.connect("autodoc-process-signature", _signature)
    # Run before napoleon, whose priority is 500.
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _skipped(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Skip methods that only display a report."""
    from hpu_magic.runtime.present.table import Table

    return True if hasattr(Table, name) or name in ("html", "html_body") else None


def _signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, arguments: str, returned: str
) -> Any:
    """Hide the signatures of result classes, because users do not create instances of them."""
    if what == "class" and not name.startswith("hpu_magic.lightning.") and name.count(".") > 1:
        return "", ""
    return arguments and (_with_values(value, arguments), returned)


def _with_values(function: Any, arguments: str) -> str:
    """Return a signature with private names replaced by their values, and code replaced by dots."""

    def default(match: re.Match[str]) -> str:
        value: Any = sys.modules[function.__module__]
        for name in match[1].split("."):
            value = getattr(value, name, ...)
        return "=..." if value is ... or callable(value) else f"={value!r}"

    return _NAMED.sub(default, arguments)


def _docstring(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Document a callable module by its call signature, and list attributes one by one."""
    if inspect.ismodule(value):
        lines[:] = [*inspect.cleandoc(documented(name.rpartition(".")[2]).__doc__).splitlines(), ""]
    lines[:] = _JOINED.sub(_separated, "\n".join(lines)).split("\n")


def _separated(joined: re.Match[str]) -> str:
    # Napoleon separates parameters that share a description, but it does not separate attributes.
    names, kind, about = joined.groups()
    return "".join(f"{name} : {kind}\n{about}" for name in names.split(", "))
