"""Flags of the bridge that a running process can change.

On a card, compile-only mode compiles graphs without running them, and the contents of results are
undefined. The simulator compiles no graphs for a card, so it runs them in this mode too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from habana_frameworks.torch import _flags

_COMPILE_ONLY = "PT_COMPILE_ONLY_MODE"
_in_force = {_COMPILE_ONLY: _flags.is_on(_COMPILE_ONLY)}


def get_pt_compile_only_mode() -> bool:
    """Return whether compile-only mode is set, by the environment or by `env_setting`."""
    return _in_force[_COMPILE_ONLY]


@contextmanager
def env_setting(name: str, value: object) -> Iterator[None]:
    """Set a flag of the bridge for a block of code.

    Raises
    ------
    KeyError
        The flag does not exist or cannot be changed in a running process.
    """
    if name not in _in_force:
        raise KeyError(f"{name} cannot be changed in a running process; use {_COMPILE_ONLY}.")
    before = _in_force[name]
    _in_force[name] = _flags.means_on(str(value))
    try:
        yield
    finally:
        _in_force[name] = before
