"""Record the user's line that imported torch, and the environment at that time.

Some flags are read only once, when ``import torch`` loads the vendor's library. This module
observes that import, so that messages can explain why a flag was set too late. The import itself is
not affected.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Any, NamedTuple

_LOADERS = "torch|lightning|pytorch_lightning|habana_frameworks|transformers|accelerate"
_IMPORT = re.compile(rf"^\s*(?:import|from)\s+(?:{_LOADERS})\b.*$", re.MULTILINE)


class Origin(NamedTuple):
    """The line that loaded torch."""

    place: str  # where the line is, such as ``In [3], line 2`` or ``train.py, line 2``
    text: str  # the stripped source line; empty if it is not available
    through: str | None = None
    """The package that the line imported, which in turn imported torch; None if it was torch."""

    def __str__(self) -> str:
        text = f"`{self.text}` ({self.place})" if self.text else self.place
        return f"{text}, through {self.through}" if self.through else text


class _Observer(MetaPathFinder):
    """A finder that records when torch is first imported, but never finds a module itself."""

    def __init__(self, number: Callable[[], int | None]) -> None:
        self.number = number
        self.origin: Origin | None = None
        self.environment: dict[str, str] | None = None

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "torch" and self.environment is None:
            self.environment = dict(os.environ)
            self.origin = _origin(sys._getframe(1), self.number())


_observer: _Observer | None = None


def observe(number: Callable[[], int | None] = lambda: None) -> None:
    """Start observing unless torch is already loaded.

    ``number`` returns the number of the notebook cell that is running, or None outside a notebook.
    """
    global _observer
    if _observer is None and "torch" not in sys.modules:
        _observer = _Observer(number)
        sys.meta_path.insert(0, _observer)


def origin(cells: Sequence[str] = ()) -> Origin | None:
    """Return the line that loaded torch, or None if it is unknown.

    If torch was loaded before `observe` was called, the function searches ``cells``, the source of
    the cells that have run.
    """
    if _observer is not None and _observer.origin is not None:
        return _observer.origin
    for number, source in enumerate(cells):
        match = _IMPORT.search(source)
        if match:
            line = source[: match.start()].count("\n") + match[0].count("\n") + 1
            return Origin(f"In [{number}], line {line}", match[0].strip())
    return None


def environment_at_import() -> Mapping[str, str]:
    """Return the environment when torch was imported, or the current one before the import."""
    if _observer is not None and _observer.environment is not None:
        return _observer.environment
    return os.environ


def _origin(frame: FrameType | None, number: int | None) -> Origin | None:
    """Return the line in the user's frame, and the outermost package that this line called."""
    inside: str | None = None
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == "__main__":
            file, line = frame.f_code.co_filename, frame.f_lineno
            place = f"In [{number}]" if number is not None else os.path.basename(file)
            text = linecache.getline(file, line).strip()
            return Origin(f"{place}, line {line}", text, inside)
        if not module.startswith(("importlib", "hpu_magic")) and module:
            inside = module.partition(".")[0]
        frame = frame.f_back
    return None
