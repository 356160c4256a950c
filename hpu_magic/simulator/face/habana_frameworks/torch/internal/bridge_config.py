"""Flags of the bridge that a running process can change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from habana_frameworks.torch import _flags

from hpu_magic.simulator import engine

_COMPILE_ONLY = "PT_COMPILE_ONLY_MODE"
_compile_only = False


def get_pt_compile_only_mode() -> bool:
    """Return whether graphs are compiled but not run, so that results contain zeros."""
    return _compile_only


def _set_compile_only(on: bool) -> None:
    global _compile_only
    engine.load().set_compile_only(on)
    _compile_only = on


@contextmanager
def env_setting(name: str, value: object) -> Iterator[None]:
    """Set a flag of the bridge for a block of code.

    Raises
    ------
    KeyError
        The bridge does not have a flag of this name that can be changed while it runs.
    """
    if name != _COMPILE_ONLY:
        raise KeyError(f"{name} cannot be changed in a running process; use {_COMPILE_ONLY}.")
    before = get_pt_compile_only_mode()
    _set_compile_only(_flags.means_on(str(value)))
    try:
        yield
    finally:
        _set_compile_only(before)


if _flags.is_on(_COMPILE_ONLY):
    _set_compile_only(True)
