"""Keep values from batches, epochs and validations on the device until they are read together."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from hpu_magic.runtime.training.curves import Curve, Curves, Point
from hpu_magic.runtime.training.not_finite import ValueWatch
from hpu_magic.runtime.training.sampler import Sampler

FIRST_STEPS = 200
"""The number of initial steps whose values are all read, so that even short fits have curves."""

_MOST_KEPT = 256  # batches, epochs and validations
_MOST_VALUES = 4096


@dataclass
class LoggedValues:
    """The values logged in one batch, epoch or validation."""

    number: int  # index among items of the same kind, even those without values
    moment: float  # end time, in seconds of ``time.monotonic()``
    step: int
    epoch: int
    """Number of optimizer steps and epoch at ``moment``."""
    place: str  # human-readable position in the fit
    values: Mapping[Curve, Any]  # tensors may be on the device
    divided_by: int = 1  # divisor of the returned loss


class PendingValues:
    """Values that have not been read from the device yet.

    When they are read, ``sampler`` receives one series per curve with ``value``, ``step`` and
    ``epoch`` (starting at 0), ``curves`` receives the newest value of each curve, and ``watch``
    checks all values.
    """

    def __init__(self, sampler: Sampler, curves: Curves, watch: ValueWatch) -> None:
        self._sampler, self._curves, self._watch = sampler, curves, watch
        self._kept: list[LoggedValues] = []
        self._values = 0

    @property
    def full(self) -> bool:
        """Whether the values must be read now in order to limit their number."""
        return len(self._kept) >= _MOST_KEPT or self._values >= _MOST_VALUES

    def add(self, logged: LoggedValues) -> None:
        """Keep the values from a batch, an epoch or a validation."""
        if logged.values:
            self._kept.append(logged)
            self._values += len(logged.values)

    def clear(self) -> None:
        """Discard all values."""
        self._kept.clear()
        self._values = 0

    def read(self) -> None:
        """Read all values and add them to their series."""
        kept, self._kept, self._values = self._kept, [], 0
        if not kept:
            return
        pairs = [(logged, curve) for logged in kept for curve in logged.values]
        factors = [logged.divided_by if curve.returned else 1 for logged, curve in pairs]
        read = iter(numbers([logged.values[curve] for logged, curve in pairs], factors))
        for logged in kept:
            self._record(logged, {curve: next(read) for curve in logged.values})

    def _record(self, logged: LoggedValues, values: dict[Curve, float]) -> None:
        loss = next((curve for curve in values if curve.returned), None)
        if loss is not None:
            self._curves.compare(loss, values[loss], values)
        for curve, value in values.items():
            curve.last = Point(logged.moment, value, logged.step, logged.epoch)
            if not curve.copies:
                self._watch.see(
                    curve.name,
                    value,
                    index=logged.number,
                    step=logged.step,
                    place=logged.place,
                    moment=logged.moment,
                    metric=curve.metric,
                )
            self._sampler.record(
                curve.series,
                moment=logged.moment,
                value=value,
                step=float(logged.step),
                epoch=float(logged.epoch),
            )


def numbers(values: Sequence[Any], factors: Sequence[int]) -> list[float]:
    """Return values as floats, multiplied by their factors, with one read per device.

    The values are one-element tensors and numbers. Products are computed in the tensor's dtype, so
    that they exactly reverse an earlier division.
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
        if len(places) == 1:  # item() alone is faster, which matters for small steps
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
    """Return a copy of a tensor that later in-place operations do not change, or a number as is."""
    return value.detach().clone() if hasattr(value, "detach") else value


def number_of(value: Any) -> float | None:
    """Return a real number or a one-element NumPy array as a float, or None for other values."""
    if getattr(value, "size", None) == 1:
        value = value.item()
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
