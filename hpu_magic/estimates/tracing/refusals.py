"""Report why a step cannot be traced, with the line of code or the module and its inputs."""

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
from hpu_magic.runtime.device.nests import described

_PYTORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[1])


_NOWHERE = "in PyTorch's own code"


class UntracedError(EstimateError):
    """Raised if a step cannot be traced; the message states the reason."""


@contextmanager
def explained() -> Iterator[None]:
    """Add the line of code to tracing errors, and the module to errors that a model raises.

    Raises `EstimateError` if operations depend on tensor values, if an operator cannot infer shapes
    without values, or if the inputs do not match a module.
    """
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UntracedError(
            "The model's operations depend on tensor values, which an estimate does not have: "
            f"{_line(error)}. {_fix(error)}"
        ) from error
    except UnsupportedOperatorException as error:
        raise _without_shapes(str(error.args[0]), error) from error
    except EstimateError:
        raise
    except Exception as error:  # the model's code can raise any exception
        message = str(error)
        if "no fake impl registered" in message:
            named = re.search(r"<(?:CustomOpDef)?\(?([\w:.]+)", message)
            raise _without_shapes(named[1] if named else "An operator", error) from error
        if "two different devices" in message or "at least two devices" in message:
            raise EstimateError(
                f"A tensor would not be on the card like the others: {_line(error)}. To move it "
                "with the model, make it a parameter or call register_buffer."
            ) from error
        if _raised_here(error):
            raise
        raise EstimateError(_by_module(error)) from error


def _fix(error: BaseException) -> str:
    modules = _running(error)
    if modules and hasattr(modules[-1], "num_experts"):
        if hasattr(modules[0], "set_experts_implementation"):
            return 'Call the model\'s set_experts_implementation("grouped_mm").'
        return "Multiply the tokens of all experts with torch.nn.functional.grouped_mm."
    return (
        "Move this decision out of the model, or estimate the parts before and after it separately."
    )


def _running(error: BaseException) -> list[Any]:
    """Return the modules that were running, starting with the outermost one."""
    return [
        frame.f_locals["self"]
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "_wrapped_call_impl"
    ]


def _raised_here(error: BaseException) -> bool:
    """Return whether this package raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    return not frames or frames[-1].filename.startswith(_OURS)


def _by_module(error: Exception) -> str:
    """Return a message with the innermost module that raised the error, and its inputs."""
    message = str(error).strip().split("\n")[0].strip().rstrip(".") or "no reason"
    if not isinstance(error, RuntimeError | TypeError | ValueError):
        message = f"{type(error).__name__}: {message}"
    line = _line(error)
    if line is not _NOWHERE:
        message = f"{message} ({line})"
    calls = [
        frame.f_locals
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "_wrapped_call_impl"
    ]
    if not calls:
        return f"The step cannot run: {message}."
    model, module = calls[0]["self"], calls[-1]["self"]
    name, outer = type(module).__name__, type(model).__name__
    if module is model:
        return f"{name} cannot process {_inputs(calls[-1])}: {message}."
    path = next((path for path, each in model.named_modules() if each is module), "")
    where = f"{path} ({name})" if path else name
    return (
        f"{where} of {outer} cannot process {_inputs(calls[-1])}: {message}. {outer} was called "
        f"with {_inputs(calls[0])}."
    )


def _inputs(call: dict[str, Any]) -> str:
    inputs = [described(each) for each in call["args"]]
    inputs += [f"{name}={described(each)}" for name, each in call["kwargs"].items()]
    return ", ".join(inputs) or "no input"


def _without_shapes(operator: str, error: BaseException) -> UntracedError:
    return UntracedError(
        f"{operator} cannot infer its output shapes without values ({_line(error)}): register a "
        "fake kernel for it with torch.library.register_fake."
    )


def _line(error: BaseException) -> str:
    """Return the innermost line of the traceback in the user's code or the model's library."""
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if not each.filename.startswith((_PYTORCH, _OURS))
    ]
    if not frames:
        return _NOWHERE
    last = frames[-1]
    text = linecache.getline(last.filename, last.lineno or 0).strip()
    where = f"{Path(last.filename).name}, line {last.lineno}"
    return f"{where}: {text}" if text else where
