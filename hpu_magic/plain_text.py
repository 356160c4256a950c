"""Escaping of text from outside, such as names of processes and messages of drivers.

Terminals execute control characters, and pages reverse the text after some others. Names that are
not valid UTF-8 contain lone surrogates, which cannot be written.
"""

from __future__ import annotations

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text with escapes, such as ``\x1b``, for characters that cannot be printed.

    Parameters
    ----------
    text : str
    keep : str
        Characters that are not escaped, such as line breaks. Spaces of any width are not escaped
        either, because reports indent their rows by no-break spaces.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep or unicodedata.category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )
