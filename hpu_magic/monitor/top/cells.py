"""Fit text to terminal cells; some characters occupy two cells."""

from __future__ import annotations

import unicodedata


def width(text: str) -> int:
    """Return the number of cells that a string occupies."""
    return sum(map(_cells, text))


def clipped(text: str, room: int) -> str:
    """Truncate a string to `room` cells, with an ellipsis if it is too long."""
    if width(text) <= room:
        return text
    taken, kept = 0, []
    for character in text:
        taken += _cells(character)
        if taken > room - 1:
            break
        kept.append(character)
    return "".join(kept) + "…" if room > 0 else ""


def padded(text: str, room: int, *, right: bool = False) -> str:
    """Truncate a string to `room` cells or pad it with spaces."""
    text = clipped(text, room)
    blanks = " " * (room - width(text))
    return blanks + text if right else text + blanks


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
