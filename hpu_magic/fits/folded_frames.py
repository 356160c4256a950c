"""Hide frames of frameworks and hpu_magic in IPython's traceback of a failed fit."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import NamedTuple

import hpu_magic

# IPython and pytest omit frames that have a local variable with this name.
_HIDDEN = "__tracebackhide__"
_BY_US = "folded by hpu_magic"
_FRAMEWORKS = (
    *("lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities"),
    *("transformers", "accelerate", "trl", "optimum"),
)


class FoldedFrames:
    """Folds traceback frames of exceptions that propagate out of the block, and of chained ones.

    Keeps the user's frames, the frames of libraries that they call, and the frame that raised the
    exception. Python's own tracebacks still show all frames.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        folders = _Folders.of_this_process()
        for chained in _chain(error):
            for frame in _folded(_frames(chained), folders):
                _hide(frame)


def has_folded_frames(error: BaseException) -> bool:
    """Return whether any frames of an exception or of its chained exceptions were folded."""
    return any(
        frame.f_locals.get(_HIDDEN) == _BY_US
        for chained in _chain(error)
        for frame in _frames(chained)
    )


class _Folders(NamedTuple):
    """Folders of packages, each ending with a separator."""

    fit: tuple[str, ...]  # frameworks and hpu_magic
    vendor: tuple[str, ...]  # the vendor's package, or its simulated version inside hpu_magic
    between: tuple[str, ...]  # packages whose functions call back into their caller's code

    @classmethod
    def of_this_process(cls) -> _Folders:
        return cls(
            _of_packages(hpu_magic.__name__, *_FRAMEWORKS),
            _of_packages("habana_frameworks"),
            (*_of_packages("torch"), contextlib.__file__),
        )

    def runs_the_fit(self, frame: FrameType) -> bool:
        path = frame.f_code.co_filename
        return path.startswith(self.fit) and not path.startswith(self.vendor)


def _of_packages(*names: str) -> tuple[str, ...]:
    """Return the folders of the packages that have been imported."""
    return tuple(
        os.path.join(folder, "")
        for name in names
        for folder in getattr(sys.modules.get(name), "__path__", ())
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and all of its causes and contexts, each only once."""
    waiting, seen = [error], set()
    while waiting:
        exception = waiting.pop()
        if exception is not None and id(exception) not in seen:
            seen.add(id(exception))
            yield exception
            waiting += [exception.__cause__, exception.__context__]


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _folded(frames: list[FrameType], folders: _Folders) -> Iterator[FrameType]:
    """Yield the frames to fold, excluding the last one, which raised the exception."""
    between: list[FrameType] | None = None
    for frame in frames:
        if folders.runs_the_fit(frame):
            yield from between or ()
            between = []
            if frame is not frames[-1]:
                yield frame
        elif between is not None and frame.f_code.co_filename.startswith(folders.between):
            between.append(frame)
        else:
            between = None


def _hide(frame: FrameType) -> None:
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return  # other code may use the variables of a module or class
    variables = frame.f_locals
    if isinstance(variables, dict):
        # Up to Python 3.12, this is a copy, which would keep the tensors of a cleared frame alive.
        variables.clear()
    variables[_HIDDEN] = _BY_US
