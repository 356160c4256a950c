"""Profiles of Python code, each in a file of its own, for ``pstats``."""

from __future__ import annotations

import cProfile
import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_profiles = itertools.count()


class cprofile:
    """Profile each call of a function into a file of a directory, which is made if need be.

    As a decorator the file is ``<function>_<process id>_<number>``, and the decorated function
    returns None, as with the vendor's. As the context of a ``with`` block, which gets the
    path, it is ``<process id>-<number>.prof``.

    Raises
    ------
    RuntimeError
        `dirname` names a file.
    """

    def __init__(self, dirname: str) -> None:
        if os.path.exists(dirname) and not os.path.isdir(dirname):
            raise RuntimeError(f"Provided dirname exists but is not a directory: {dirname}")
        self._folder = Path(dirname)
        self._running: list[tuple[cProfile.Profile, Path]] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., None]:
        """Return `function` with a profile of each call, and without its result."""

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> None:
            name = f"{function.__name__}_{os.getpid()}_{next(_profiles)}"
            profile = cProfile.Profile()
            try:
                profile.runcall(function, *args, **kwargs)
            finally:
                self._write(profile, self._folder / name)

        return profiled

    def __enter__(self) -> Path:
        path = self._folder / f"{os.getpid()}-{next(_profiles)}.prof"
        profile = cProfile.Profile()
        self._running.append((profile, path))
        profile.enable()
        return path

    def __exit__(self, *exception: object) -> None:
        profile, path = self._running.pop()
        profile.disable()
        self._write(profile, path)

    def _write(self, profile: cProfile.Profile, path: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        profile.dump_stats(path)
