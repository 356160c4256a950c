"""Runs of a model on what users give: tensors, dictionaries, batches of a loader, a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from hpu_magic.errors import RefusedError

Run = Callable[[Any], Any]
"""Takes the model, calls it, and returns what it gave."""


def of_sample(model: Any, sample: Sequence[Any]) -> Run:
    """Return the run that a sample asks for.

    Parameters
    ----------
    model : torch.nn.Module
        Says the type that floating-point tensors are given.
    sample : sequence
        What the model takes, in order; a dictionary holds arguments by name. Or one function,
        which is called with the model.

    Raises
    ------
    RefusedError
        Neither tensors nor a function.
    """
    import torch

    if is_function(sample):
        function: Run = sample[0]
        return function
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for one in sample:
        if isinstance(one, Mapping):
            named.update(one)
        else:
            positional.extend(one if isinstance(one, tuple | list) else [one])
    for one in (*positional, *named.values()):
        if isinstance(one, str | torch.nn.Module):
            raise RefusedError(
                f"A {type(one).__name__} is no sample: give tensors, or a function that takes the "
                "model and calls it."
            )
    return _call(_moved(model, positional), _moved(model, named))


def is_function(sample: Sequence[Any]) -> bool:
    """Tell whether a sample is a function that calls the model."""
    import torch

    return len(sample) == 1 and callable(sample[0]) and not isinstance(sample[0], torch.nn.Module)


def of_batches(model: Any, data: Any, batches: int | None) -> Iterator[Run]:
    """Yield a run for each batch of a loader.

    A batch is a tensor, a dictionary of arguments, or a tuple that begins with what the model
    requires: labels behind it are left out.

    Parameters
    ----------
    model : torch.nn.Module
        Says how many arguments it requires, and the type of floating-point tensors.
    data : iterable
        For example a `DataLoader`.
    batches : int or None
        Most batches to take; None takes all.

    Raises
    ------
    RefusedError
        `data` cannot be iterated over, or `batches` is no number of batches.
    """
    if batches is not None and batches < 1:
        raise RefusedError(f"The number of batches is {batches}: give 1 or more.")
    if not isinstance(data, Iterable):
        raise RefusedError(f"A {type(data).__name__} is no data: give a DataLoader or a list.")
    required = _required(model)
    for batch in islice(data, batches):
        if isinstance(batch, Mapping):
            yield _call([], _moved(model, batch))
        else:
            given = list(batch) if isinstance(batch, tuple | list) else [batch]
            yield _call(_moved(model, given[:required]), {})


def _call(positional: Any, named: Any) -> Run:
    return lambda model: model(*positional, **named)


def _required(model: Any) -> int | None:
    """Return how many arguments the model cannot do without; None where it takes any number."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return None
    by_place = [one for one in parameters if one.kind < one.KEYWORD_ONLY]
    return max(1, sum(one.default is one.empty for one in by_place))


def _moved(model: Any, value: Any) -> Any:
    """Return tensors on the device, floating-point ones in the type of the model's parameters."""
    import torch

    if isinstance(value, torch.Tensor):
        dtype = next((one.dtype for one in model.parameters() if one.is_floating_point()), None)
        return value.to("hpu", dtype if value.is_floating_point() else None)
    if isinstance(value, Mapping):
        return {key: _moved(model, one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        moved = [_moved(model, one) for one in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value
