"""Table of the names of torch.cuda and their replacements."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """Replacement of a name.

    Attributes
    ----------
    name : str
        Relative to ``torch.cuda``.
    kind : {"hpu_match", "hpu_modified", "hpu_mismatch"}
        The vendor's category.
    counterpart : str
        For a match, a dotted name. For a mismatch, a dummy value as a Python literal, ``raises``,
        ``range`` (a context manager without effect) or ``as it is``.
    why : str
    """

    name: str
    kind: str
    counterpart: str
    why: str

    @property
    def value(self) -> Any:
        """The dummy value for a mismatch."""
        return ast.literal_eval(self.counterpart)


def entries() -> list[Entry]:
    """Return the entries in the order of the table."""
    text = Path(__file__).with_name("cuda.tsv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return [Entry(*line.split("\t")) for line in lines]
