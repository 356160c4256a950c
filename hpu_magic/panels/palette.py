"""Colours and measures shared by the live charts and the static picture.

Every colour is of middle lightness, so that it reads on a light and on a dark page.
"""

from __future__ import annotations

from hpu_magic.runtime.present.drawing import FONT, GRID, TEXT

__all__ = ["FONT", "GRID", "TEXT"]

TRAIN = "#3d85c6"
VALIDATION = "#d9822b"
SPEED = "#3f9e72"
MEMORY = "#8e6fcf"
COMPILATION = "#c9534f"
BROKEN = "#d1495b"

CURVES = (
    *((TRAIN, ""), ("#0b9e73", "7 3"), ("#c46fa0", "2 2")),
    *((TRAIN, "10 3 2 3"), ("#0b9e73", "4 5"), ("#c46fa0", "12 3 2 3 2 3")),
)
"""Colour and dashes of logged values. No two share their dashes, so that they are told apart
without colour; the three colours are with every kind of colour vision. The validation has dots."""

COMPILATION_DASHES = "5 3"
"""Of the lines where a graph was compiled; those of epochs are solid, those of NaN are dotted."""

WIDTH = 760
LEFT = 64
"""Pixels left of each plot for its labels, so that the time axes line up."""
HEIGHTS = {"loss": 150, "speed": 96, "memory": 120}
