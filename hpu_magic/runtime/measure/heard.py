"""Values of batches, epochs and validations on the device, until they are read together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpu_magic.runtime.measure.curves import Curve, Curves, Point
from hpu_magic.runtime.measure.not_finite import Watch
from hpu_magic.runtime.measure.read_values import numbers
from hpu_magic.runtime.measure.sampler import Sampler

FIRST_STEPS = 200
"""Number of steps at the start of a fit whose values are all read, for curves of short fits."""

_MOST_KEPT = 256  # batches, epochs and validations
_MOST_VALUES = 4096


@dataclass
class Heard:
    """The values of one batch, epoch or validation.

    Attributes
    ----------
    number : int
        Number among its kind, including those whose values are not kept.
    moment : float
        Time of its end, in seconds of ``time.monotonic()``.
    step, epoch : int
        Number of optimizer steps, and the epoch, at its end.
    place : str
        The place as text.
    values : mapping of Curve to tensor or float
        Tensors may be on the device.
    divided_by : int
        Divisor of the returned loss.
    """

    number: int
    moment: float
    step: int
    epoch: int
    place: str
    values: Mapping[Curve, Any]
    divided_by: int = 1


class HeardValues:
    """Values that have not been read from the device.

    Parameters
    ----------
    sampler
        Receives a series per curve, with ``value``, ``step`` and ``epoch`` (from 0).
    curves
        Receives the newest value of each curve.
    watch
        Checks all values.
    """

    def __init__(self, sampler: Sampler, curves: Curves, watch: Watch) -> None:
        self._sampler, self._curves, self._watch = sampler, curves, watch
        self._kept: list[Heard] = []
        self._values = 0

    @property
    def full(self) -> bool:
        """Whether the values must be read now, to limit their number."""
        return len(self._kept) >= _MOST_KEPT or self._values >= _MOST_VALUES

    def add(self, heard: Heard) -> None:
        """Keep the values of a batch, an epoch or a validation."""
        if heard.values:
            self._kept.append(heard)
            self._values += len(heard.values)

    def clear(self) -> None:
        """Drop all values."""
        self._kept.clear()
        self._values = 0

    def read(self) -> None:
        """Read all values and add them to their series."""
        kept, self._kept, self._values = self._kept, [], 0
        if not kept:
            return
        pairs = [(heard, curve) for heard in kept for curve in heard.values]
        factors = [heard.divided_by if curve.returned else 1 for heard, curve in pairs]
        read = iter(numbers([heard.values[curve] for heard, curve in pairs], factors))
        for heard in kept:
            self._see(heard, {curve: next(read) for curve in heard.values})

    def _see(self, heard: Heard, values: dict[Curve, float]) -> None:
        loss = next((curve for curve in values if curve.returned), None)
        if loss is not None:
            self._curves.compare(loss, values[loss], values)
        for curve, value in values.items():
            curve.last = Point(heard.moment, value, heard.step, heard.epoch)
            if not curve.copies:
                self._watch.see(
                    curve.name,
                    value,
                    index=heard.number,
                    step=heard.step,
                    place=heard.place,
                    moment=heard.moment,
                    metric=curve.metric,
                )
            self._sampler.record(
                curve.series,
                moment=heard.moment,
                value=value,
                step=float(heard.step),
                epoch=float(heard.epoch),
            )
