"""What a metric's chart says, live and as a picture: its curves, their styles, its title."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.trace import Trace
from hpu_magic.runtime.measure.curves import Curve

LABEL_ROOM = 56
"""Pixels that ``epoch 2`` takes, up to the next number."""

NUMBER_ROOM = 24
"""The same of a number alone."""


LONGEST_BEST = ", best seen -1.234e-05 at step 123456"
"""The most that a title may say after its name."""


@dataclass(frozen=True)
class Style:
    """How one curve is drawn and what the legend calls it."""

    curve: Curve
    words: str
    colour: str
    dashes: str

    @property
    def dots(self) -> bool:
        """Whether each value has a dot: there is one an epoch, or one a validation."""
        return self.curve.every == "epoch"


def styles(curves: Sequence[Curve]) -> list[Style]:
    """Return a style for each curve of one chart; no two are alike."""
    found: list[Style] = []
    further = iter(palette.FURTHER_CURVES * 2)
    for curve in curves:
        style = palette.CURVES[curve.stage, curve.every]
        first = all((one.colour, one.dashes) != style for one in found)
        alone = [(one.stage, one.every) for one in curves].count((curve.stage, curve.every)) == 1
        words = curve.stage + (" by epoch" if _by_epoch_too(curve, curves) else "")
        if not alone:
            words = curve.name
        found.append(Style(curve, words, *(style if first else next(further))))
    return found


def _by_epoch_too(curve: Curve, curves: Sequence[Curve]) -> bool:
    """Tell whether a curve of epochs stands beside one of steps of the same stage."""
    steps = any(one.stage == curve.stage and one.every == "step" for one in curves)
    return curve.every == "epoch" and steps


class Best(NamedTuple):
    """The best value of a chart, which is a point of one of its curves."""

    curve: Curve
    time: float
    step: int
    epoch: int
    value: float

    @property
    def words(self) -> str:
        """For example ``best 0.123 in epoch 4``."""
        if self.curve.every == "epoch":
            return f"best {number(self.value)} in epoch {self.epoch + 1}"
        # Not every step is looked at, every epoch is.
        return f"best seen {number(self.value)} at step {self.step}"


def best_of(traces: Mapping[Curve, Trace], curves: Sequence[Curve]) -> Best | None:
    """Return the best value of a chart, as far as it is drawn.

    It is one of the validation, else one of an epoch: single steps are better by chance.
    """
    known = [
        (curve, row)
        for curve in curves
        if curve in traces and (row := traces[curve].best) is not None
    ]
    known.sort(key=lambda one: (one[0].every == "step", one[0].stage == "training"))
    for curve, (time, step, epoch, value) in known[:1]:
        return Best(curve, time, int(step), int(epoch), value)
    return None


def title(metric: str, traces: Mapping[Curve, Trace], curves: Sequence[Curve]) -> str:
    """Return the words above a chart: its name and its best value."""
    name = curves[0].name if len(curves) == 1 else metric
    best = best_of(traces, curves)
    return name if best is None else f"{name}, {best.words}"


def number(value: float) -> str:
    """Return a value as people read it."""
    if math.isnan(value):
        return "NaN"
    return units.value(value)


def epoch_labels(places: Sequence[float], numbers: Sequence[float]) -> list[str]:
    """Return the label above each line between epochs: the one that ended there, if it fits.

    The values of an epoch are known at its end, so its label is where they are drawn.

    Parameters
    ----------
    places
        Where the lines are, in pixels.
    numbers
        Of the epochs that began there.
    """
    labels: list[str] = []
    free = 0.0
    for place, epoch in zip(places, numbers, strict=True):
        if place < free or not labels:  # the first begins where the axis does
            labels.append("")
            continue
        word = "" if any(labels) else "epoch "
        labels.append(f"{word}{epoch - 1:.0f}")
        free = place + (LABEL_ROOM if word else NUMBER_ROOM)
    return labels
