"""Values that batches, epochs and validations left behind, until they are read in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpu_magic.runtime.measure.curves import Curve, Curves, Point
from hpu_magic.runtime.measure.not_finite import Watch
from hpu_magic.runtime.measure.read_values import numbers
from hpu_magic.runtime.measure.sampler import Sampler

FIRST_STEPS = 200
"""How many steps of a fit are all heard, however fast they are: short fits have no others."""

_MOST_KEPT = 256  # batches that wait to be read
_MOST_VALUES = 4096


@dataclass
class Heard:
    """One batch, epoch or validation, and what it left behind.

    Attributes
    ----------
    number : int
        Counts its kind, those too that nobody listened to.
    moment : float
        When it ended, in seconds of ``time.monotonic()``.
    step, epoch : int
        Optimizer steps and epoch by then.
    place : str
        The same in words.
    values : mapping of Curve to tensor or float
        As they are on the device.
    divided_by : int
        What the returned loss was divided by.
    """

    number: int
    moment: float
    step: int
    epoch: int
    place: str
    values: Mapping[Curve, Any]
    divided_by: int = 1


class HeardValues:
    """What was heard and not looked at yet.

    Parameters
    ----------
    sampler
        Receives a series for each curve, with ``value``, ``step`` and ``epoch`` (from 0).
    curves
        Told the newest value of each.
    watch
        Shown every value.
    """

    def __init__(self, sampler: Sampler, curves: Curves, watch: Watch) -> None:
        self._sampler, self._curves, self._watch = sampler, curves, watch
        self._kept: list[Heard] = []
        self._values = 0

    @property
    def full(self) -> bool:
        """Whether it is time to look, due or not."""
        return len(self._kept) >= _MOST_KEPT or self._values >= _MOST_VALUES

    def add(self, heard: Heard) -> None:
        """Keep what a batch, an epoch or a validation left behind."""
        if heard.values:
            self._kept.append(heard)
            self._values += len(heard.values)

    def clear(self) -> None:
        """Let go of all tensors."""
        self._kept.clear()
        self._values = 0

    def read(self) -> None:
        """Read all values and add them to their series."""
        kept, self._kept, self._values = self._kept, [], 0
        if not kept:
            return
        pairs = [(one, curve) for one in kept for curve in one.values]
        factors = [one.divided_by if curve.returned else 1 for one, curve in pairs]
        found = numbers([one.values[curve] for one, curve in pairs], factors)
        by_batch: dict[int, dict[Curve, float]] = {}
        for (one, curve), number in zip(pairs, found, strict=True):
            by_batch.setdefault(id(one), {})[curve] = number
        for one in kept:
            self._see(one, by_batch[id(one)])

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
