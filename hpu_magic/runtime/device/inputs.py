"""Sample inputs of a model: one tensor, a sequence of arguments, or a dict of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword arguments of a model's call.

    ``inputs`` is one argument, a list or tuple of arguments, or a dict of keyword arguments. A dict
    at the end of a longer sequence contains keyword arguments, as in `torch.onnx.export`.
    """
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if not isinstance(inputs, list | tuple):
        return (inputs,), {}
    if len(inputs) > 1 and isinstance(inputs[-1], Mapping):
        return tuple(inputs[:-1]), dict(inputs[-1])
    return tuple(inputs), {}
