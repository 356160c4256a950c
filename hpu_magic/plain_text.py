"""Escaping of external text, such as process names and driver messages.

Terminals interpret control characters, and some characters reverse the direction of the text that
follows them on a page. Names that are not valid UTF-8 contain lone surrogates, which cannot be
encoded.
"""

from __future__ import annotations

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    r"""Replace unprintable characters with escapes such as ``\x1b``.

    Characters in `keep`, such as line breaks, are not escaped. Neither are spaces of any width,
    because reports indent their rows with no-break spaces.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep or unicodedata.category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )
