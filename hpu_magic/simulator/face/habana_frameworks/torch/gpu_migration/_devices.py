"""Map CUDA devices in arguments to the HPU."""

from __future__ import annotations

import re
from typing import Any

import torch

_CUDA = re.compile(r"cuda(:\d+)?")
_REAL = torch.device
_NAMING = (str, _REAL)
_PARAMETERS = ("device", "device_type", "map_location", "pin_memory_device")


def place(value: Any) -> Any:
    """Return the HPU if `value` is any GPU, because a process has only one card.

    Other values are returned unchanged.
    """
    if isinstance(value, str):
        match = _CUDA.fullmatch(value)
        if match is not None:
            return "hpu:0" if match[1] else "hpu"
    elif isinstance(value, _REAL) and value.type == "cuda":
        return _REAL("hpu") if value.index is None else _REAL("hpu", 0)
    return value


def numbered(value: Any) -> Any:
    """Like `place`, but also map numbers, for arguments in which a number always means a GPU."""
    return "hpu:0" if type(value) is int else place(value)


def module_of(value: Any) -> Any:
    """Map ``cuda:1`` to ``hpu:1``, for functions that use the machine's card numbers."""
    if isinstance(value, _REAL):
        value = str(value) if value.type == "cuda" else value
    if isinstance(value, str) and _CUDA.fullmatch(value):
        return value.replace("cuda", "hpu")
    return value


def places(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace GPUs in a call's arguments with the HPU; return the same objects if nothing changes.

    A number is treated as a GPU index only in the `device` argument.
    """
    for index, value in enumerate(args):
        if isinstance(value, _NAMING) and (mapped := place(value)) is not value:
            args = (*args[:index], mapped, *args[index + 1 :])
    if kwargs:
        for name in _PARAMETERS:
            value = kwargs.get(name)
            mapped = numbered(value) if name == "device" else place(value)
            if mapped is not value:
                kwargs = {**kwargs, name: mapped}
    return args, kwargs
