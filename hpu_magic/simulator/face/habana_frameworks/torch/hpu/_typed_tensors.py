"""Typed tensors such as ``torch.hpu.FloatTensor``, which correspond to PyTorch's CPU types."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch


class _TypedTensor(type):
    """Metaclass of typed tensors: calls create tensors, and isinstance() checks the dtype."""

    dtype: torch.dtype

    def __call__(
        cls, *arguments: Any, size: Sequence[int] | None = None, device: Any = "hpu"
    ) -> torch.Tensor:
        """Create an uninitialized tensor of the given size, or a tensor from a sequence."""
        if torch.device(device or "hpu").type != "hpu":
            raise RuntimeError(
                f"torch.hpu.{cls.__name__} can only create tensors on hpu, not on {device}; use "
                f"torch.{cls.__name__} or torch.tensor(..., device={str(device)!r})."
            )
        if size is not None and arguments:
            raise TypeError(
                f"torch.hpu.{cls.__name__} got {arguments[0]!r} and size={size!r}; "
                "omit one of them."
            )
        if len(arguments) == 1 and not _is_size(arguments[0]):
            return cls._of(arguments[0])
        return torch.empty(_sizes(arguments, size), dtype=cls.dtype, device="hpu")

    def _of(cls, data: Any) -> torch.Tensor:
        if isinstance(data, cls):
            return data.view_as(data)
        if isinstance(data, torch.Tensor):
            raise RuntimeError(
                f"torch.hpu.{cls.__name__} expects a {cls.dtype} tensor on hpu, but got a "
                f"{data.dtype} tensor on {data.device}; convert it with .to('hpu', {cls.dtype})."
            )
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            raise TypeError(
                f"torch.hpu.{cls.__name__} expects sizes or a sequence, but got {data!r}; "
                "use torch.tensor for a single value."
            )
        return torch.tensor(data, dtype=cls.dtype, device="hpu")

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, torch.Tensor)
            and instance.device.type == "hpu"
            and instance.dtype == cls.dtype
        )


def _is_size(value: Any) -> bool:
    """Return whether a single argument is a shape or a size rather than a sequence of values."""
    if isinstance(value, (bool, torch.Tensor)):
        return False
    try:
        operator.index(value)
    except TypeError:
        return isinstance(value, torch.Size)
    return True


def _sizes(arguments: tuple[Any, ...], size: Sequence[int] | None) -> tuple[int, ...]:
    if size is None:
        size = arguments or (0,)
        if len(size) == 1 and isinstance(size[0], torch.Size):
            size = size[0]
    return tuple(map(operator.index, size))


def _typed(name: str, dtype: torch.dtype) -> _TypedTensor:
    doc = f"A tensor of {dtype} on ``hpu``."
    return _TypedTensor(name, (), {"__module__": "torch.hpu", "__doc__": doc, "dtype": dtype})


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
