"""Colors and sizes shared by the live charts and the static picture.

All colors have medium lightness, so that they are legible on light and dark pages.
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
"""Color and dashes of the curves of a metric, by stage and by frequency. Curves by epoch also have
dots."""

FURTHER_CURVES = (("#0b9e73", "10 3 2 3"), ("#c46fa0", "4 5"), ("#0b9e73", "12 3 2 3 2 3"))
"""Color and dashes of further curves in one chart.

All combinations of dashes and dots differ, so that curves are distinguishable without color. The
colors are distinguishable for people with any kind of color vision.
"""

COMPILATION_DASHES = "5 3"
"""Dashes of the lines at compilations; lines at epochs are solid, lines at NaN are dotted."""

WIDTH = 760
_CHARACTER = 6.1  # average width of a character in titles and legends, in pixels
_GAP = 12


def width_of(text: str) -> float:
    """Return the approximate width of text in a title or a legend, in pixels."""
    return _CHARACTER * len(text)


def legend_width(labels: Sequence[str]) -> float:
    """Return the approximate width of a legend in one line, with a gap before it, in pixels."""
    return sum(width_of(label) + 32 + _GAP for label in labels)


LEFT = 64
"""Pixels to the left of each plot for its labels, so that the time axes are aligned."""
EPOCHS_HEIGHT = 14
"""Pixels of the row of epoch numbers above the first chart."""
