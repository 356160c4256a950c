"""Colours and measures shared by the live charts and the static picture.

Every colour is of middle lightness, so that it reads on a light and on a dark page.
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
BROKEN = "#d1495b"
BEST = TEXT

CURVES = {
    ("training", "step"): (TRAIN, ""),
    ("training", "epoch"): (TRAIN, "7 3"),
    ("validation", "epoch"): (VALIDATION, ""),
    ("validation", "step"): (VALIDATION, "2 2"),
}
"""Colour and dashes of a metric's curves, by stage and by what there is one value for. Those of
epochs have dots as well."""

FURTHER_CURVES = (("#0b9e73", "10 3 2 3"), ("#c46fa0", "4 5"), ("#0b9e73", "12 3 2 3 2 3"))
"""The same for more curves in one chart. No two share dashes and dots, so that they are told apart
without colour; the colours are with every kind of colour vision."""

COMPILATION_DASHES = "5 3"
"""Of the lines where a graph was compiled; those of epochs are solid, those of NaN are dotted."""

WIDTH = 760
_CHARACTER = 6.1  # pixels of an average one in titles and legends
_GAP = 12


def width_of(words: str) -> float:
    """Return about how many pixels words of a title or a legend take."""
    return _CHARACTER * len(words)


def legend_width(words: Sequence[str]) -> float:
    """Return about how many pixels a legend in one line takes, with a gap before it."""
    return sum(width_of(one) + 32 + _GAP for one in words)


LEFT = 64
"""Pixels left of each plot for its labels, so that the time axes line up."""
EPOCHS_HEIGHT = 14
"""Pixels of the line with the epochs' numbers, above the first chart."""
HEIGHTS = {"loss": 160, "metric": 104, "speed": 96, "memory": 120}
