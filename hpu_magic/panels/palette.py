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
    *((TRAIN, ""), ("#0b9e73", ""), ("#c46fa0", "")),
    *((TRAIN, "6 4"), ("#0b9e73", "6 4"), ("#c46fa0", "6 4")),
)
"""Colour and dashes of logged values. The three colours are told apart with every kind of colour
vision, beside that of the validation too; more of them would not be."""

WIDTH = 760
LEFT = 64
"""Pixels left of each plot for its labels, so that the time axes line up."""
HEIGHTS = {"loss": 150, "speed": 96, "memory": 120}
