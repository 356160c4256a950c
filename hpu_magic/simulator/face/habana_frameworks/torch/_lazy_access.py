"""Lazy mode: what Python does with a tensor's memory waits for the work that is recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from hpu_magic.simulator import engine

# Whether what they hand out is a place to read. A storage also tells sizes and identity, which are
# there where values are not; whoever copies it is told.
_READERS = {"data_ptr": True, "untyped_storage": False}


def install() -> None:
    """Make the tensor methods that hand out memory wait for it, and storages keep it."""
    for name, to_read in _READERS.items():
        setattr(torch.Tensor, name, _after_running(getattr(torch.Tensor, name), to_read))
    torch.UntypedStorage.resize_ = _unless_of_that_size(torch.UntypedStorage.resize_)


def _after_running(read: Callable[..., Any], to_read: bool) -> Callable[..., Any]:
    materialize = engine.load().materialize

    @functools.wraps(read)
    def wrapper(tensor: torch.Tensor) -> Any:
        if tensor.device.type == "hpu":
            materialize(tensor, to_read)
        return read(tensor)

    return wrapper


def _unless_of_that_size(resize: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(resize)
    def wrapper(storage: torch.UntypedStorage, size: Any) -> Any:
        # PyTorch would copy the bytes to other memory and free these: the copy would be recorded,
        # and read what is free by then.
        if storage.device.type == "hpu" and size == storage.nbytes():
            return storage
        return resize(storage, size)

    return wrapper
