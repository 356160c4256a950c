"""The content of a metric's chart in the live panel and the picture: curves, styles and title."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.trace import Trace
from hpu_magic.runtime.training.curves import Curve

FIRST_HEIGHT, HEIGHT = 160, 104
"""Heights of the first chart and of the other charts, in pixels."""

LABEL_ROOM = 56
"""Minimum distance in pixels from the start of a label such as ``epoch 2`` to the next label."""

NUMBER_ROOM = 24
"""Minimum distance in pixels between the starts of two labels that are only numbers."""

LONGEST_BEST = ", best seen -1.234e-05 at step 123456"
"""The longest text that can follow the name in a title."""


@dataclass(frozen=True)
class Style:
    """The style of a curve, and its label in the legend."""

    curve: Curve
    label: str
    color: str
    dashes: str

    @property
    def dots(self) -> bool:
        """Whether each value is marked with a dot, because there is one per epoch or validation."""
        return self.curve.every == "epoch"


def styles(curves: Sequence[Curve]) -> list[Style]:
    """Return a different style for each curve of a chart."""
    result: list[Style] = []
    further = iter(palette.FURTHER_CURVES * 2)
    kinds = [(curve.stage, curve.every) for curve in curves]
    for curve, kind in zip(curves, kinds, strict=True):
        look = palette.CURVES[kind]
        is_first = all((style.color, style.dashes) != look for style in result)
        has_both = curve.every == "epoch" and (curve.stage, "step") in kinds
        label = curve.stage + (" by epoch" if has_both else "")
        if kinds.count(kind) > 1:
            label = curve.name
        result.append(Style(curve, label, *(look if is_first else next(further))))
    return result


class Best(NamedTuple):
    """The point with the best value in a chart."""

    curve: Curve
    time: float
    step: int
    epoch: int
    value: float

    @property
    def text(self) -> str:
        """The point as text, for example ``best 0.123 in epoch 4``."""
        if self.curve.every == "epoch":
            return f"best {number(self.value)} in epoch {self.epoch + 1}"
        # The panel reads the values of every epoch, but not those of every step.
        return f"best seen {number(self.value)} at step {self.step}"


def best_of(traces: Mapping[Curve, Trace], curves: Sequence[Curve]) -> Best | None:
    """Return the best value among the points drawn in a chart.

    Validation values come first, then epoch values, because single steps can be better by chance.
    """
    known = [
        (curve, row)
        for curve in curves
        if curve in traces and (row := traces[curve].best) is not None
    ]
    known.sort(key=lambda item: (item[0].every == "step", item[0].stage == "training"))
    for curve, (time, step, epoch, value) in known[:1]:
        return Best(curve, time, int(step), int(epoch), value)
    return None


def title(metric: str, traces: Mapping[Curve, Trace], curves: Sequence[Curve]) -> str:
    """Return the title of a chart: its name and its best value."""
    name = curves[0].name if len(curves) == 1 else metric
    best = best_of(traces, curves)
    return name if best is None else f"{name}, {best.text}"


def sentence(metric: str, traces: Mapping[Curve, Trace], curves: Sequence[Curve]) -> str:
    """Return the last values and the best value in a chart for users who cannot see it."""
    last = ", ".join(
        f"{curve.name} {number(curve.last.value)}" for curve in curves if curve.last is not None
    )
    if not last:
        return ""
    best = best_of(traces, [curve for curve in curves if curve.last is not None])
    if best is None:
        return f"Chart of {metric}: last {last}"
    return (
        f"Chart of {metric}: last {last}; best of {best.curve.name} {number(best.value)} "
        f"at step {best.step}"
    )


def number(value: float) -> str:
    """Return a formatted value."""
    if math.isnan(value):
        return "NaN"
    return units.value(value)


def epoch_labels(places: Sequence[float], numbers: Sequence[float]) -> list[str]:
    """Return the label for each epoch line: the number of the epoch that ended there, if it fits.

    An epoch's values are known at its end, so that is where its label goes. `places` contains
    positions in pixels, and `numbers` the epochs that began there.
    """
    labels: list[str] = []
    free = 0.0
    for place, epoch in zip(places, numbers, strict=True):
        if place < free or not labels:  # the first line is the start of the first epoch
            labels.append("")
            continue
        prefix = "" if any(labels) else "epoch "
        labels.append(f"{prefix}{epoch - 1:.0f}")
        free = place + (LABEL_ROOM if prefix else NUMBER_ROOM)
    return labels
