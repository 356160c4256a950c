"""Build the arguments of a model call from the user's inputs."""

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
    """Return the model inside a ``torch.compile`` wrapper, or the model itself."""
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
    """Return the positional and keyword arguments for calling a model.

    A single mapping whose keys are argument names of the model, such as a batch from transformers,
    is passed as keyword arguments. During training, a transformers language model runs without a KV
    cache and uses its inputs as labels unless labels are passed, as in transformers' `Trainer`.
    """
    if not inputs and not named:
        raise EstimateError(
            f"{type(model).__name__} needs inputs: pass tensors of the right shapes, such as "
            "torch.empty(8, 1024, dtype=torch.long), on any device, or a batch as a dict."
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


def check_names(model: nn.Module, named: Mapping[str, Any], arguments: Iterable[str]) -> None:
    """Raise `EstimateError` if a name is an argument of neither `estimate` nor the model."""
    parameters = inspect.signature(model.forward).parameters
    trains = hasattr(model, "training_step")  # a LightningModule; its batch can have any keys
    open_ended = trains or _is_open_ended(parameters)
    for name in named:
        similar = suggestion(name, arguments)
        if name in parameters or (open_ended and not similar):
            continue
        known = [each.name for each in parameters.values() if each.kind is not each.VAR_KEYWORD]
        fix = similar or suggestion(name, known) or f"use {', '.join(known) or 'none'}."
        raise EstimateError(
            f"{name!r} is not an argument of the estimate or of {type(model).__name__}: {fix}"
        )


def _is_open_ended(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _names(inputs: Mapping[Any, Any], parameters: Mapping[str, inspect.Parameter]) -> bool:
    open_ended = _is_open_ended(parameters)
    return bool(inputs) and all(
        isinstance(name, str) and (name in parameters or open_ended) for name in inputs
    )


def _generates(model: nn.Module) -> bool:
    """Return whether transformers considers a model capable of generating text."""
    can_generate = getattr(model, "can_generate", None)
    return callable(can_generate) and bool(can_generate())
