"""Messages about missing optional dependencies, with the extra that installs them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec


def absence(what: str, extra: str, modules: Sequence[str]) -> str | None:
    """Return a sentence that says how to install missing modules, or None if all are installed.

    `what` names the feature that requires the modules, and `extra` is the extra of hpu_magic that
    installs them. The modules are not imported.
    """
    absent = [module for module in modules if find_spec(module) is None]
    if not absent:
        return None
    *others, last = absent
    named = f"{', '.join(others)} and {last}" if others else last
    verb = "are" if others else "is"
    return f"{what} needs {named}, which {verb} not installed: {installing(extra)}."


def installing(extra: str) -> str:
    """Return instructions for installing an extra in a terminal and in a notebook."""
    return f'run pip install "hpu_magic[{extra}]" (in a notebook, use %pip install)'
