"""What a metric's chart says, live and as a picture: its curves, their styles, its title."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic.panels import palette
from hpu_magic.runtime.measure.curves import Curve

__all__ = [
    "LABEL_ROOM",
    "NUMBER_ROOM",
    "Style",
    "best_of",
    "epoch_labels",
    "number",
    "styles",
    "title",
]

LABEL_ROOM = 56
"""Pixels that ``epoch 2`` takes, up to the next number."""

NUMBER_ROOM = 24
"""The same of a number alone."""


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


def best_of(curves: Sequence[Curve]) -> Curve | None:
    """Return the curve whose best value a chart marks.

    That is the validation's, else that of epochs: single steps are better by chance.
    """
    known = [curve for curve in curves if curve.best is not None]
    known.sort(key=lambda curve: (curve.every == "step", curve.stage == "training"))
    return known[0] if known else None


def title(metric: str, curves: Sequence[Curve]) -> str:
    """Return the words above a chart: its name and its best value."""
    name = curves[0].name if len(curves) == 1 else metric
    best = best_of(curves)
    if best is None or best.best is None:
        return name
    # Not every step is looked at, every epoch is.
    word = "best" if best.every == "epoch" else "best seen"
    return f"{name}, {word} {number(best.best.value)} {_when(best)}"


def _when(curve: Curve) -> str:
    assert curve.best is not None
    if curve.every == "epoch":
        return f"in epoch {curve.best.epoch + 1}"
    return f"at step {curve.best.step}"


def number(value: float) -> str:
    """Return a value as people read it."""
    if math.isnan(value):
        return "NaN"
    return f"{value:.4g}"


def epoch_labels(places: Sequence[float], numbers: Sequence[float]) -> list[str]:
    """Return what stands above the line of each epoch: its number where there is room for it.

    Parameters
    ----------
    places
        Where the lines are, in pixels.
    numbers
        Of the epochs.
    """
    labels: list[str] = []
    free = 0.0
    for place, epoch in zip(places, numbers, strict=True):
        if place < free or epoch == 1:  # the first begins where the axis does
            labels.append("")
            continue
        word = "" if any(labels) else "epoch "
        labels.append(f"{word}{epoch:.0f}")
        free = place + (LABEL_ROOM if word else NUMBER_ROOM)
    return labels
