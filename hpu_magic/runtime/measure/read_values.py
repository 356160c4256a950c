"""The reading of logged values from the devices that they lie on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from numbers import Real
from typing import Any


def numbers(values: Sequence[Any], factors: Sequence[int]) -> list[float]:
    """Return values as numbers, times their factors, in one read of each device.

    The product is of a tensor's own type, so that what was divided rounds back to what it was.

    Parameters
    ----------
    values
        Tensors of one element, and numbers.
    factors
        One for each value.
    """
    torch: Any = sys.modules.get("torch")
    read: list[float] = [0.0] * len(values)
    by_device: dict[Any, list[int]] = {}
    for place, one in enumerate(values):
        if hasattr(one, "device"):
            by_device.setdefault(one.device, []).append(place)
        else:
            read[place] = float(one)
    for places in by_device.values():
        if len(places) == 1:  # each further call of PyTorch costs a fit's small steps
            read[places[0]] = float(values[places[0]].item())
            continue
        found = [values[place].detach().reshape(()) for place in places]
        exact = torch.float64 if any(one.dtype == torch.float64 for one in found) else torch.float32
        together = torch.stack([one.to(exact) for one in found]).cpu().tolist()
        for place, number in zip(places, together, strict=True):
            read[place] = number
    return [
        number
        if factor == 1
        else float(torch.tensor(number, dtype=getattr(one, "dtype", None)) * factor)
        for number, factor, one in zip(read, factors, values, strict=True)
    ]


def copied(value: Any) -> Any:
    """Return a copy of a tensor, which later changes in place do not reach; numbers as they are."""
    return value.detach().clone() if hasattr(value, "detach") else value


def number_of(value: Any) -> float | None:
    """Return a real number, or the one of an array of NumPy, as a float; None for what is none."""
    if getattr(value, "size", None) == 1:
        value = value.item()
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
