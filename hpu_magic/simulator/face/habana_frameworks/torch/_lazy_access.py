"""Lazy mode: looking at a tensor's memory from Python runs the work that it waits for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from hpu_magic.simulator import engine

_READERS = ("data_ptr", "untyped_storage")


def install() -> None:
    """Make the tensor methods that hand out memory wait for it."""
    for name in _READERS:
        setattr(torch.Tensor, name, _after_running(getattr(torch.Tensor, name)))


def _after_running(read: Callable[..., Any]) -> Callable[..., Any]:
    materialize = engine.load().materialize

    @functools.wraps(read)
    def wrapper(tensor: torch.Tensor) -> Any:
        if tensor.device.type == "hpu":
            materialize(tensor)
        return read(tensor)

    return wrapper
