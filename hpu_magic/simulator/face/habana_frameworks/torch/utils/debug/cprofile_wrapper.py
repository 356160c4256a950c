"""Write Python profiles to separate files that ``pstats`` can read."""

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
    """Decorator or context manager that writes profiles to a directory, which it creates if needed.

    As a decorator, it writes ``<function>_<process ID>_<number>`` for each call, and the decorated
    function returns None, which matches the vendor's decorator. As a context manager, it writes
    ``<process ID>-<number>.prof`` and returns the path. Raises RuntimeError if `dirname` is a file.
    """

    def __init__(self, dirname: str) -> None:
        if os.path.exists(dirname) and not os.path.isdir(dirname):
            raise RuntimeError(f"Provided dirname exists but is not a directory: {dirname}")
        self._folder = Path(dirname)
        self._running: list[tuple[cProfile.Profile, Path]] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., None]:
        """Return a function that profiles each call to `function` and returns None."""

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
