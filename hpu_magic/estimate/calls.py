"""How a model is called with what the user gave for it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hpu_magic.estimate.errors import EstimateError

Call = tuple[tuple[Any, ...], dict[str, Any]]


def uncompiled(model: nn.Module) -> nn.Module:
    """Return what ``torch.compile`` wraps, whose call tells its arguments; any other as it is."""
    if isinstance(model, torch._dynamo.OptimizedModule):
        model = model._orig_mod
    return model


def call_of(model: nn.Module, inputs: tuple[Any, ...], *, train: bool) -> Call:
    """Return the positional and the named arguments of the model's call.

    One mapping whose keys are names of the model's arguments, as a batch of transformers' data
    loaders is, gives these arguments. A language model of transformers that trains is given its
    input as labels where there are none, and no cache, as its Trainer does.

    Raises
    ------
    EstimateError
        There are no inputs.
    """
    if not inputs:
        raise EstimateError(
            f"{type(model).__name__} is called with inputs: give tensors of the right shapes, such "
            "as torch.empty(8, 1024, dtype=torch.long), on any device, or a batch as a dict."
        )
    parameters = inspect.signature(model.forward).parameters
    if len(inputs) == 1 and isinstance(inputs[0], Mapping) and _names(inputs[0], parameters):
        args, kwargs = (), dict(inputs[0])
    elif _generates(model) and "input_ids" in parameters:
        names = list(parameters)[: len(inputs)]
        args, kwargs = (), dict(zip(names, inputs, strict=False))
    else:
        return inputs, {}
    if train and _generates(model):
        if "labels" in parameters and "input_ids" in kwargs:
            kwargs.setdefault("labels", kwargs["input_ids"])
        if "use_cache" in parameters:
            kwargs.setdefault("use_cache", False)
    return args, kwargs


def _names(given: Mapping[Any, Any], parameters: Mapping[str, inspect.Parameter]) -> bool:
    open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return bool(given) and all(
        isinstance(name, str) and (name in parameters or open_ended) for name in given
    )


def _generates(model: nn.Module) -> bool:
    """Tell whether it is a language model by the protocol of transformers."""
    asked = getattr(model, "can_generate", None)
    return callable(asked) and bool(asked())
