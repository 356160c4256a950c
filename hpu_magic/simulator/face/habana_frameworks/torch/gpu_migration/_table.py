"""The table of torch.cuda: what becomes of each of its names."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """What becomes of a name.

    Attributes
    ----------
    name : str
        Behind ``torch.cuda.``
    kind : {"hpu_match", "hpu_modified", "hpu_mismatch"}
        Class in the vendor's terms.
    counterpart : str
        For a match a dotted name; for a mismatch the value that stands in, as Python writes it,
        ``raises``, ``range`` (a context that does nothing) or ``as it is``.
    why : str
    """

    name: str
    kind: str
    counterpart: str
    why: str

    @property
    def value(self) -> Any:
        """The value that stands in for a mismatch."""
        return ast.literal_eval(self.counterpart)


def entries() -> list[Entry]:
    """Return the table, in its order."""
    text = Path(__file__).with_name("cuda.tsv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return [Entry(*line.split("\t")) for line in lines]
