"""Text from outside, such as names of processes and messages of drivers, as plain characters.

A terminal obeys control characters, and pages reverse the text after some others. Names that are
not valid UTF-8 arrive as lone surrogates, which cannot be written at all.
"""

from __future__ import annotations

import unicodedata


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text whose characters that cannot be printed are escaped, such as ``\x1b``.

    Parameters
    ----------
    text : str
    keep : str
        Characters that stay, such as the line breaks of a text with several lines. Spaces of any
        width stay, too: reports indent their rows by no-break spaces.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in keep or unicodedata.category(each) == "Zs"
        else each.encode("unicode_escape").decode()
        for each in text
    )
