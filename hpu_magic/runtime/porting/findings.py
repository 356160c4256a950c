"""What a reader is told of a line that is ported."""

from __future__ import annotations

from dataclasses import dataclass

MISSING = "missing"
INACTIVE = "inactive"
REMARK = "remark"
NOT_PORTED = "it stands in a magic or a formatted text, and is not ported"


@dataclass(frozen=True)
class Finding:
    """A sentence about a line.

    Attributes
    ----------
    line : int
        In the cell's text.
    kind : {"missing", "inactive", "remark"}
        No counterpart, so that the cell cannot run; no counterpart and no effect; worth knowing.
    text : str
        The sentence, without a full stop.
    """

    line: int
    kind: str
    text: str
