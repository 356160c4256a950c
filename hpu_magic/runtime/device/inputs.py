"""Sample inputs for a model: a tensor, a sequence of arguments, or a dict of keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments for calling a model.

    ``inputs`` is a single argument, a list or tuple of arguments, or a dict of keyword arguments. A
    dict at the end of a longer sequence is passed as keyword arguments, as in `torch.onnx.export`.
    """
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if not isinstance(inputs, list | tuple):
        return (inputs,), {}
    if len(inputs) > 1 and isinstance(inputs[-1], Mapping):
        return tuple(inputs[:-1]), dict(inputs[-1])
    return tuple(inputs), {}
