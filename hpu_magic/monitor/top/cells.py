"""Text in the cells of a terminal: some characters take two, and some would be obeyed."""

from __future__ import annotations

import unicodedata


def width(text: str) -> int:
    """Return how many cells a text takes."""
    return sum(map(_cells, text))


def clipped(text: str, room: int) -> str:
    """Return as much of a text as `room` cells hold; what is cut off leaves an ellipsis."""
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
    """Return a text clipped to `room` cells and filled up with blanks."""
    text = clipped(text, room)
    blanks = " " * (room - width(text))
    return blanks + text if right else text + blanks


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
