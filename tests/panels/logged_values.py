"""Curve values, logged in the same way as by the callback of a fit."""

from typing import Any

from hpu_magic.runtime.training.curves import Point
from hpu_magic.runtime.training.sampler import Sampler


def log(
    sampler: Sampler, curve: Any, moment: float, value: float, step: int = 0, epoch: int = 0
) -> None:
    """Add a value to a curve."""
    curve.last = Point(moment, value, step, epoch)
    sampler.record(curve.series, moment=moment, value=value, step=float(step), epoch=float(epoch))
