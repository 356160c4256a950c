"""Run a model on tensors, dictionaries or batches from a loader, or through a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device.inputs import call_arguments

Run = Callable[[Any], Any]
"""A function that calls the model and returns its output."""


def of_inputs(model: Any, inputs: Any) -> Run:
    """Return a function that runs a model on the inputs; an existing function is returned as is.

    Floating-point tensors are converted to the dtype of the model's parameters. Raises `HPUError`
    if the inputs are neither tensors nor a function.
    """
    import torch

    if is_function(inputs):
        function: Run = inputs
        return function
    positional, named = call_arguments(inputs)
    for value in (*positional, *named.values()):
        if isinstance(value, str | torch.nn.Module):
            raise HPUError(
                f"Inputs cannot be of type {type(value).__name__}: pass tensors, or a function "
                f"that calls the model."
            )
    return _call(_moved(model, positional), _moved(model, named))


def is_function(inputs: Any) -> bool:
    """Return whether the inputs are a function that calls the model."""
    import torch

    return callable(inputs) and not isinstance(inputs, torch.nn.Module | torch.Tensor)


def of_batches(model: Any, data: Any, batches: int | None) -> Iterator[Run]:
    """Yield a function that runs a model for each of the first ``batches`` batches of a loader.

    A batch is a tensor, a dictionary of arguments, or a tuple that starts with the model's required
    arguments; anything after them, such as labels, is ignored. Floating-point tensors are converted
    to the dtype of the model's parameters.
    """
    if batches is not None and batches < 1:
        raise HPUError(f"The number of batches is {batches}: use 1 or more.")
    if not isinstance(data, Iterable):
        raise HPUError(
            f"Data of type {type(data).__name__} is not iterable: pass a DataLoader or a list."
        )
    required = _required(model)
    for batch in islice(data, batches):
        if isinstance(batch, Mapping):
            yield _call([], _moved(model, dict(batch)))
        else:
            values = list(batch) if isinstance(batch, tuple | list) else [batch]
            yield _call(_moved(model, values[:required]), {})


def _call(positional: Any, named: Any) -> Run:
    return lambda model: model(*positional, **named)


def _required(model: Any) -> int | None:
    """Return the number of required arguments, or None if the model accepts any number."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    positional = [each for each in parameters if each.kind < each.KEYWORD_ONLY]
    return max(1, sum(each.default is each.empty for each in positional))


def _moved(model: Any, value: Any) -> Any:
    """Move tensors to the device, and convert floating-point tensors to the parameters' dtype."""
    from hpu_magic.runtime.device import nests

    types = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
    dtype = next(types, None)
    return nests.mapped(
        value, lambda tensor: tensor.to("hpu", dtype if tensor.is_floating_point() else None)
    )
