"""What cannot be traced without numbers, and the line of the model that wants them."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from hpu_magic.estimate.errors import EstimateError


@contextmanager
def explained() -> Iterator[None]:
    """Have what cannot be traced say so with its line.

    Raises
    ------
    EstimateError
        What runs depends on numbers, or on an operator that tells no shapes without them.
    """
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise EstimateError(
            f"What the model runs depends on numbers, which an estimate has not: {_line(error)}. "
            "Make that choice outside of the model, or estimate the parts before and behind it."
        ) from error
    except UnsupportedOperatorException as error:
        raise EstimateError(
            f"{error.args[0]} tells no shapes without computing ({_line(error)}): register a fake "
            "kernel for it with torch.library.register_fake."
        ) from error


def _line(error: BaseException) -> str:
    """Name the innermost line of the user's own, else of the library that is the model's."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if not one.filename.startswith(ours)
    ]
    if not frames:
        return "in PyTorch's own code"
    last = frames[-1]
    text = linecache.getline(last.filename, last.lineno or 0).strip()
    return f"{Path(last.filename).name}, line {last.lineno}: {text}"
