"""In lazy mode, execute recorded operations before Python reads a tensor's memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from hpu_magic.simulator import engine

# Whether the method returns an address that callers read from. Callers of ``untyped_storage`` may
# need only the storage's size or identity; the engine detects when they copy the storage.
_METHODS = {"data_ptr": True, "untyped_storage": False}


def install() -> None:
    """Wrap the tensor methods that expose memory, and the method that resizes storages."""
    for name, reads in _METHODS.items():
        setattr(torch.Tensor, name, _materializing(getattr(torch.Tensor, name), reads))
    torch.UntypedStorage.resize_ = _resizing_only_to_other_sizes(torch.UntypedStorage.resize_)


def _materializing(method: Callable[..., Any], reads: bool) -> Callable[..., Any]:
    materialize = engine.load().materialize

    @functools.wraps(method)
    def wrapper(tensor: torch.Tensor) -> Any:
        if tensor.device.type == "hpu":
            materialize(tensor, reads)
        return method(tensor)

    return wrapper


def _resizing_only_to_other_sizes(resize: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(resize)
    def wrapper(storage: torch.UntypedStorage, size: Any) -> Any:
        # PyTorch would copy the bytes and free the old memory. Lazy mode only records the copy, so
        # it would later read memory that is already freed.
        if storage.device.type == "hpu" and size == storage.nbytes():
            return storage
        return resize(storage, size)

    return wrapper
