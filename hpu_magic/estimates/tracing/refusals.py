"""What cannot be traced: the line that wants numbers, or the module and what it was given."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.nests import described

_PYTORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[1])


_NOWHERE = "in PyTorch's own code"


class UntracedError(EstimateError):
    """Of what a step runs, nothing can be told beyond what the text names."""


@contextmanager
def explained() -> Iterator[None]:
    """Have what cannot be traced say so with its line, and what a model raises with its module.

    Raises
    ------
    EstimateError
        What runs depends on numbers, or on an operator that tells no shapes without them; or a
        module cannot take what it is given.
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
    except EstimateError:
        raise
    except Exception as error:  # the model's code, which may raise anything
        said = str(error)
        if "no fake impl registered" in said:
            named = re.search(r"<(?:CustomOpDef)?\(?([\w:.]+)", said)
            raise _without_shapes(named[1] if named else "An operator", error) from error
        if "two different devices" in said or "at least two devices" in said:
            raise EstimateError(
                f"A tensor would not be on the card beside the others: {_line(error)}. What a "
                "model keeps must be a parameter, or a buffer by register_buffer, to move with it."
            ) from error
        if _raised_here(error):
            raise
        raise EstimateError(_by_module(error)) from error


def _raised_here(error: BaseException) -> bool:
    """Tell whether it is this package's own fault."""
    frames = traceback.extract_tb(error.__traceback__)
    return not frames or frames[-1].filename.startswith(_OURS)


def _by_module(error: Exception) -> str:
    """Name the innermost module that raises, and what it and the model were given."""
    said = str(error).strip().split("\n")[0].strip().rstrip(".") or "no reason is given"
    if not isinstance(error, RuntimeError | TypeError | ValueError):
        said = f"{type(error).__name__}: {said}"
    line = _line(error)
    if line is not _NOWHERE:
        said = f"{said} ({line})"
    calls = [
        frame.f_locals
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "_wrapped_call_impl"
    ]
    if not calls:
        return f"The step cannot run: {said}."
    model, module = calls[0]["self"], calls[-1]["self"]
    name, outer = type(module).__name__, type(model).__name__
    if module is model:
        return f"{name} cannot take {_given(calls[-1])}: {said}."
    path = next((path for path, one in model.named_modules() if one is module), "")
    where = f"{path} ({name})" if path else name
    return (
        f"{where} of {outer} cannot take {_given(calls[-1])}: {said}. {outer} was called with "
        f"{_given(calls[0])}."
    )


def _given(call: dict[str, Any]) -> str:
    told = [described(one) for one in call["args"]]
    told += [f"{name}={described(one)}" for name, one in call["kwargs"].items()]
    return ", ".join(told) or "no input"


def _without_shapes(operator: str, error: BaseException) -> UntracedError:
    return UntracedError(
        f"{operator} tells no shapes without computing ({_line(error)}): register a fake kernel "
        "for it with torch.library.register_fake."
    )


def _line(error: BaseException) -> str:
    """Name the innermost line of the user's own, else of the library that is the model's."""
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if not one.filename.startswith((_PYTORCH, _OURS))
    ]
    if not frames:
        return _NOWHERE
    last = frames[-1]
    text = linecache.getline(last.filename, last.lineno or 0).strip()
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{where}: {text}" if text else where
