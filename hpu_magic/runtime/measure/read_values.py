"""Reads of logged values from their devices."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from numbers import Real
from typing import Any


def numbers(values: Sequence[Any], factors: Sequence[int]) -> list[float]:
    """Return values as numbers, multiplied by their factors, with one read per device.

    A product is computed in the tensor's type, so that it reverses an earlier division exactly.

    Parameters
    ----------
    values
        Tensors of one element, and numbers.
    factors
        One per value.
    """
    torch: Any = sys.modules.get("torch")
    read: list[float] = [0.0] * len(values)
    by_device: dict[Any, list[int]] = {}
    for place, value in enumerate(values):
        if hasattr(value, "device"):
            by_device.setdefault(value.device, []).append(place)
        else:
            read[place] = float(value)
    for places in by_device.values():
        if len(places) == 1:  # saves calls of PyTorch, which slow down small steps
            read[places[0]] = float(values[places[0]].item())
            continue
        tensors = [values[place].detach().reshape(()) for place in places]
        double = any(tensor.dtype == torch.float64 for tensor in tensors)
        dtype = torch.float64 if double else torch.float32
        together = torch.stack([tensor.to(dtype) for tensor in tensors]).cpu().tolist()
        for place, number in zip(places, together, strict=True):
            read[place] = number
    return [
        number
        if factor == 1
        else float(torch.tensor(number, dtype=getattr(value, "dtype", None)) * factor)
        for number, factor, value in zip(read, factors, values, strict=True)
    ]


def copied(value: Any) -> Any:
    """Return a copy of a tensor, which later in-place operations do not change, or a number."""
    return value.detach().clone() if hasattr(value, "detach") else value


def number_of(value: Any) -> float | None:
    """Return a real number, or a NumPy array of one element, as a float; None for other values."""
    if getattr(value, "size", None) == 1:
        value = value.item()
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
