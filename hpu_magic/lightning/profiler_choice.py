"""``Trainer(profiler="hpu")``."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

_PATCHED = "_hpu_magic_patched"


def patch(setup: ModuleType, profiler_class: type[Any]) -> None:
    """Let Lightning know the profiler by name; its own table of names is inside a function.

    Parameters
    ----------
    setup
        ``lightning.pytorch.trainer.setup`` or its counterpart.
    profiler_class
        What ``profiler="hpu"`` makes.
    """
    if hasattr(setup, _PATCHED):
        return
    original = setup._init_profiler

    @functools.wraps(original)
    def init_profiler(trainer: Any, profiler: Any) -> None:
        named = isinstance(profiler, str) and profiler.lower() == "hpu"
        original(trainer, profiler_class() if named else profiler)

    setup._init_profiler = init_profiler  # type: ignore[attr-defined]
    setattr(setup, _PATCHED, True)
