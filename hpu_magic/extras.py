"""What more than PyTorch a part of hpu_magic takes, and the extra that installs it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec


def absence(what: str, extra: str, modules: Sequence[str]) -> str | None:
    """Say which modules `what` lacks and how to install them, or return None where all are there.

    Parameters
    ----------
    what : str
        What asks for them, as the beginning of a sentence: ``"%load_ext hpu_magic"``.
    extra : str
        The extra of hpu_magic that has them.
    modules : sequence of str
        Their names; none is imported.
    """
    absent = [module for module in modules if find_spec(module) is None]
    if not absent:
        return None
    *others, last = absent
    named = f"{', '.join(others)} and {last}" if others else last
    verb = "are" if others else "is"
    return f"{what} needs {named}, which {verb} not installed: {installing(extra)}."


def installing(extra: str) -> str:
    """Return what to type, in a notebook and in a terminal, to install an extra."""
    return f'run pip install "hpu_magic[{extra}]" (in a notebook %pip install)'
