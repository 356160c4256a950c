"""Findings about lines of ported code."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "missing"
INACTIVE = "inactive"
REMARK = "remark"
NOT_PORTED = "code in a magic or a formatted string is not ported"
ONE_CARD = "a process has only one card, so every number refers to hpu:0"


@dataclass(frozen=True)
class LineFinding:
    """A finding about a line of code, expressed as a sentence."""

    line: int
    kind: str
    """`MISSING` if a name has no counterpart, so the cell cannot run; `INACTIVE` if it has neither
    a counterpart nor an effect; `REMARK` for a note."""
    text: str  #: the sentence, without a period
