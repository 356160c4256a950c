"""Colors and sizes shared by the live charts and the static picture.

All colors have a medium lightness, so they are legible on both light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpu_magic.runtime.present.drawing import FONT as FONT
from hpu_magic.runtime.present.drawing import GRID as GRID
from hpu_magic.runtime.present.drawing import TEXT

TRAIN = "#3d85c6"
VALIDATION = "#d9822b"
SPEED = "#3f9e72"
MEMORY = "#8e6fcf"
COMPILATION = "#c9534f"
NOT_FINITE = "#d1495b"
BEST = TEXT

CURVES = {
    ("training", "step"): (TRAIN, ""),
    ("training", "epoch"): (TRAIN, "7 3"),
    ("validation", "epoch"): (VALIDATION, ""),
    ("validation", "step"): (VALIDATION, "2 2"),
}
"""Line color and dashes of a metric's curves, by stage and logging frequency. Curves with one value
per epoch also have dots."""

FURTHER_CURVES = (("#0b9e73", "10 3 2 3"), ("#c46fa0", "4 5"), ("#0b9e73", "12 3 2 3 2 3"))
"""Line color and dashes of additional curves in the same chart.

All combinations of dashes and dots differ, so curves are distinguishable without color. The colors
are distinguishable with any type of color vision.
"""

COMPILATION_DASHES = "5 3"
"""Dashes of the lines that mark compilations. Epoch lines are solid, and NaN lines are dotted."""

WIDTH = 760
_CHARACTER = 6.1  # average width in pixels of a character in titles and legends
_GAP = 12


def width_of(text: str) -> float:
    """Return the approximate width of text in a title or legend, in pixels."""
    return _CHARACTER * len(text)


def legend_width(labels: Sequence[str]) -> float:
    """Return the approximate width of a one-line legend and the gap before it, in pixels."""
    return sum(width_of(label) + 32 + _GAP for label in labels)


LEFT = 64
"""Width of the labels to the left of each plot, in pixels; it is fixed to align the time axes."""
EPOCHS_HEIGHT = 14
"""Height of the row of epoch numbers above the first chart, in pixels."""
