"""Sentences about lines of ported code."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "missing"
INACTIVE = "inactive"
REMARK = "remark"
NOT_PORTED = "code in a magic or a formatted string is not ported"
ONE_CARD = "a process has one card, hpu:0, for every number"


@dataclass(frozen=True)
class Finding:
    """A sentence about a line.

    Attributes
    ----------
    line : int
        Number of the line.
    kind : {"missing", "inactive", "remark"}
        "missing": a name has no counterpart, so the cell cannot run. "inactive": it has no
        counterpart and no effect. "remark": a note.
    text : str
        The sentence, without a period.
    """

    line: int
    kind: str
    text: str
