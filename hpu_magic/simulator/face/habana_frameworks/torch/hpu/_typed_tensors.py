"""Typed tensors, ``torch.hpu.FloatTensor`` and the like, as PyTorch has them for the CPU."""

from __future__ import annotations

import functools
from typing import Any

import torch


class _TypedTensor(type):
    """Type of the tensors of one dtype on the device: makes them, and knows them by isinstance."""

    dtype: torch.dtype

    def __call__(cls, *arguments: Any, device: Any = "hpu") -> torch.Tensor:
        """Return a tensor without values of the given sizes, or one of a sequence's values.

        Raises
        ------
        RuntimeError
            Another device is asked for, or the argument is a tensor of another type.
        TypeError
            The argument is neither sizes nor a sequence.
        """
        if torch.device(device).type != "hpu":
            raise RuntimeError(
                f"torch.hpu.{cls.__name__} makes tensors on hpu, not on {device}; "
                f"use torch.{cls.__name__} or torch.tensor(..., device={str(device)!r})."
            )
        if len(arguments) == 1 and not isinstance(arguments[0], (int, torch.Size)):
            return cls._of(arguments[0])
        sizes = arguments[0] if arguments and isinstance(arguments[0], torch.Size) else arguments
        return torch.empty(sizes or (0,), dtype=cls.dtype, device="hpu")

    def _of(cls, data: Any) -> torch.Tensor:
        if isinstance(data, cls):
            return data.view_as(data)
        if isinstance(data, torch.Tensor):
            raise RuntimeError(
                f"torch.hpu.{cls.__name__} takes a {cls.dtype} tensor on hpu and got a "
                f"{data.dtype} one on {data.device}; convert it with .to('hpu', {cls.dtype})."
            )
        if isinstance(data, (float, complex)):
            raise TypeError(
                f"torch.hpu.{cls.__name__} takes sizes or a sequence and got {data!r}; "
                "use torch.tensor for a single value."
            )
        return torch.tensor(data, dtype=cls.dtype, device="hpu")

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "hpu"
            and instance.dtype == cls.dtype
        )


def _typed(name: str, dtype: torch.dtype) -> _TypedTensor:
    described = f"A tensor of {dtype} on ``hpu``."
    return _TypedTensor(name, (), {"__module__": "torch.hpu", "__doc__": described, "dtype": dtype})


BFloat16Tensor = _typed("BFloat16Tensor", torch.bfloat16)
BoolTensor = _typed("BoolTensor", torch.bool)
ByteTensor = _typed("ByteTensor", torch.uint8)
CharTensor = _typed("CharTensor", torch.int8)
DoubleTensor = _typed("DoubleTensor", torch.float64)
FloatTensor = _typed("FloatTensor", torch.float32)
HalfTensor = _typed("HalfTensor", torch.float16)
IntTensor = _typed("IntTensor", torch.int32)
LongTensor = _typed("LongTensor", torch.int64)
ShortTensor = _typed("ShortTensor", torch.int16)

_BY_NAME = {
    f"torch.hpu.{kind.__name__}": kind
    for kind in tuple(globals().values())
    if isinstance(kind, _TypedTensor)
}


def install() -> None:
    """Let ``tensor.type(...)`` take the types of the device, by name or themselves.

    PyTorch gives their names as the types of tensors on ``hpu``, but converts to none of them.
    """
    convert = torch.Tensor.type

    @functools.wraps(convert)
    def wrapper(
        tensor: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **options: Any
    ) -> Any:
        kind = _BY_NAME.get(dtype) if isinstance(dtype, str) else dtype
        if isinstance(kind, _TypedTensor):
            return tensor.to("hpu", kind.dtype, non_blocking=non_blocking)
        return convert(tensor, dtype, non_blocking, **options)

    torch.Tensor.type = wrapper
