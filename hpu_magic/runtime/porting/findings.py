"""Sentences about lines of ported code."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "missing"
INACTIVE = "inactive"
REMARK = "remark"
NOT_PORTED = "code in a magic or a formatted string is not ported"
ONE_CARD = "a process has one card, hpu:0, for every number"


@dataclass(frozen=True)
class LineFinding:
    """A sentence about a line."""

    line: int
    kind: str
    """`MISSING`: a name has no counterpart, so the cell cannot run. `INACTIVE`: it has neither a
    counterpart nor an effect. `REMARK`: a note."""
    text: str  #: the sentence, without a period
