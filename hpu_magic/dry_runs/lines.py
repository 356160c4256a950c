"""Lines of a script, with their memory and events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpu_magic import units
from hpu_magic.runtime.present.report import Row

MOST_LINES = 5
_LONGEST = 120  # characters of a line's code


@dataclass(frozen=True)
class Line:
    """A line of code, with the memory that it reserved or the number of events that it caused.

    Attributes
    ----------
    file : str
        Path of the file.
    line : int
        Number of the line.
    text : str
        The line's code.
    what : str
        The operator, or an empty string.
    count : int
        Number of events.
    bytes : int
        Memory at the peak.
    library : Line or None
        The line of a library that this line called and that caused the events, or that reserved
        most of the memory.
    """

    file: str
    line: int
    text: str
    what: str = ""
    count: int = 0
    bytes: int = 0
    library: Line | None = None

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Line:
        """Create the line from the record of a process."""
        library = record.get("library")
        return cls(**{**record, "library": None if library is None else cls(**library)})

    @property
    def place(self) -> str:
        """File name and line number in the user's code, and in the library that it calls."""
        if not self.file:
            return "unknown line"
        place = f"{Path(self.file).name}:{self.line}"
        return place if self.library is None else f"{place} ({self.library.innermost})"

    @property
    def innermost(self) -> str:
        """The library's line, or this line, in the form that ``--value`` accepts."""
        if self.library is not None:
            return self.library.innermost
        _, installed, path = self.file.rpartition("-packages/")
        return f"{path if installed else Path(self.file).name}:{self.line}"

    @property
    def code(self) -> str:
        """The code of the library's line, or of this line, with at most 120 characters."""
        text = self.text if self.library is None else self.library.text
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


@dataclass(frozen=True)
class Shortage:
    """An allocation that did not fit on the card.

    Attributes
    ----------
    line : Line
        The line that allocated memory.
    bytes : int
        The size of the allocation.
    in_use : int
        The memory that was in use.
    capacity : int
        The memory that tensors can use.
    """

    line: Line
    bytes: int
    in_use: int
    capacity: int

    @property
    def missing(self) -> int:
        """The number of bytes that are missing."""
        return self.in_use + self.bytes - self.capacity


def described_shortage(shortage: Shortage) -> str:
    """Return which line needs how much memory, and how much of it is missing."""
    return (
        f"{shortage.line.place} needs {units.size(shortage.bytes)}, but "
        f"{units.usage(shortage.in_use, shortage.capacity)} are in use: "
        f"{units.size(shortage.missing)} too much"
    )


def line_rows(label: str, lines: list[Line]) -> list[Row]:
    """Return a row for each line, up to a maximum number."""
    rows = []
    for each in lines[:MOST_LINES]:
        rows.append((label, _memory(each) if each.bytes else _events(each)))
        label = ""
    if more := len(lines) - MOST_LINES:
        rows += [("", f"and {more} more lines")] if more > 0 else []
    return rows


def _events(line: Line) -> str:
    return f"{line.count} x {line.what} in {line.place}: {line.code}".removesuffix(": ")


def _memory(line: Line) -> str:
    own = replace(line, library=None)
    text = f"{units.size(line.bytes)} in {own.place}: {own.code}".removesuffix(": ")
    if line.library is None:
        return text
    is_part = line.library.bytes < line.bytes
    part = f"{units.size(line.library.bytes)} of this in " if is_part else "in "
    return f"{text} ({part}{line.library.innermost})"
