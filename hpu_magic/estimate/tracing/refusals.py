"""What cannot be traced without numbers, and the line of the model that wants them."""

from __future__ import annotations

import linecache
import re
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


class UntracedError(EstimateError):
    """Of what a step runs, nothing can be told beyond what the text names."""


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
        raise UntracedError(
            f"What the model runs depends on numbers, which an estimate has not: {_line(error)}. "
            "Make that choice outside of the model, or estimate the parts before and behind it."
        ) from error
    except UnsupportedOperatorException as error:
        raise _without_shapes(str(error.args[0]), error) from error
    except RuntimeError as error:
        said = str(error)
        if "no fake impl registered" in said:
            named = re.search(r"<(?:CustomOpDef)?\(?([\w:.]+)", said)
            raise _without_shapes(named[1] if named else "An operator", error) from error
        if "two different devices" in said or "at least two devices" in said:
            raise EstimateError(
                f"A tensor would not be on the card beside the others: {_line(error)}. What a "
                "model keeps must be a parameter, or a buffer by register_buffer, to move with it."
            ) from error
        raise


def _without_shapes(operator: str, error: BaseException) -> UntracedError:
    return UntracedError(
        f"{operator} tells no shapes without computing ({_line(error)}): register a fake kernel "
        "for it with torch.library.register_fake."
    )


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
