"""How a model is called with what the user gave for it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from hpu_magic.errors import suggestion
from hpu_magic.estimates.errors import EstimateError

Call = tuple[tuple[Any, ...], dict[str, Any]]


def uncompiled(model: nn.Module) -> nn.Module:
    """Return what ``torch.compile`` wraps, whose call tells its arguments; any other as it is."""
    if isinstance(model, torch._dynamo.OptimizedModule):
        model = model._orig_mod
    return model


def call_of(
    model: nn.Module,
    inputs: tuple[Any, ...],
    named: Mapping[str, Any] | None = None,
    *,
    train: bool,
) -> Call:
    """Return the positional and the named arguments of the model's call.

    One mapping whose keys are names of the model's arguments, as a batch of transformers' data
    loaders is, gives these arguments. A language model of transformers that trains is given its
    input as labels where there are none, and no cache, as its Trainer does.

    Raises
    ------
    EstimateError
        There are no inputs.
    """
    if not inputs and not named:
        raise EstimateError(
            f"{type(model).__name__} is called with inputs: give tensors of the right shapes, such "
            "as torch.empty(8, 1024, dtype=torch.long), on any device, or a batch as a dict."
        )
    parameters = inspect.signature(model.forward).parameters
    kwargs = dict(named or {})
    if len(inputs) == 1 and isinstance(inputs[0], Mapping) and _names(inputs[0], parameters):
        args, kwargs = (), {**inputs[0], **kwargs}
    elif _generates(model) and "input_ids" in parameters and len(inputs) <= len(parameters):
        args, kwargs = (), {**dict(zip(parameters, inputs, strict=False)), **kwargs}
    else:
        return inputs, kwargs
    if train and _generates(model):
        if "labels" in parameters and "input_ids" in kwargs:
            kwargs.setdefault("labels", kwargs["input_ids"])
        if "use_cache" in parameters:
            kwargs.setdefault("use_cache", False)
    return args, kwargs


def refuse_unknown(model: nn.Module, named: Mapping[str, Any], arguments: Iterable[str]) -> None:
    """Raise an error for names that are neither an estimate's arguments nor the model's.

    Raises
    ------
    EstimateError
        There is one; the text names what may have been meant.
    """
    parameters = inspect.signature(model.forward).parameters
    trains = hasattr(model, "training_step")  # a LightningModule, whose batch has any names
    open_ended = trains or _is_open_ended(parameters)
    for name in named:
        meant = suggestion(name, arguments)
        if name in parameters or (open_ended and not meant):
            continue
        taken = [one.name for one in parameters.values() if one.kind is not one.VAR_KEYWORD]
        mend = meant or suggestion(name, taken) or f"it takes {', '.join(taken) or 'nothing'}."
        raise EstimateError(
            f"{name!r} is neither an argument of an estimate nor of {type(model).__name__}: {mend}"
        )


def _is_open_ended(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def _names(given: Mapping[Any, Any], parameters: Mapping[str, inspect.Parameter]) -> bool:
    open_ended = _is_open_ended(parameters)
    return bool(given) and all(
        isinstance(name, str) and (name in parameters or open_ended) for name in given
    )


def _generates(model: nn.Module) -> bool:
    """Tell whether it is a language model by the protocol of transformers."""
    asked = getattr(model, "can_generate", None)
    return callable(asked) and bool(asked())
