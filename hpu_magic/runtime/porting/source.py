"""The source of a cell, and edits that leave the rest of the source unchanged."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A replacement for a piece of the source."""

    start: int
    end: int
    """The offsets of the replaced piece in the source."""
    shown: str  # the replacement in the displayed code, which may add lines
    executed: str
    """The replacement in the executed code, with as many line breaks as the replaced piece, so that
    each statement keeps its line number."""


class Source:
    """Source text, with methods that convert positions in the syntax tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = _lines(text) or [""]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a position whose column is in bytes, as in the syntax tree.

        A position after the last line maps to the end of the text.
        """
        if line > len(self._lines):
            return len(self.text)
        before = self._lines[line - 1].encode()[:column].decode(errors="replace")
        return self._starts[line - 1] + len(before)

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset of a node's start."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Return the offset of a node's end."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return a node's source."""
        return self.text[self.start(node) : self.end(node)]

    def line_of(self, offset: int) -> tuple[int, int]:
        """Return the start and end of the line at an offset, excluding its line break."""
        begins = self.text.rfind("\n", 0, offset) + 1
        ends = self.text.find("\n", offset)
        return begins, len(self.text) if ends < 0 else ends

    def replaced(self, start: int, end: int, text: str, *, whole: bool = False) -> Edit:
        """Return the edit that replaces a piece with `text`.

        If the piece is a whole expression that spans several lines, `text` is put in parentheses so
        that the line breaks can be kept.
        """
        lost = "\n" * self.text.count("\n", start, end)
        executed = f"({text}{lost})" if whole and lost else text + lost
        return Edit(start, end, text, executed)

    def after(self, node: ast.stmt, statement: str) -> list[Edit]:
        """Return the edits that add a statement after a simple statement.

        The statement is on a separate line in the displayed code if possible, and on `node`'s line
        in the executed code.
        """
        here = self.end(node)
        _, ends = self.line_of(here)
        rest = self.text[here:ends].strip()
        first, _ = self.line_of(self.start(node))
        indent = self.text[first : self.start(node)]
        if indent.strip() or (rest and not rest.startswith("#")):
            return [Edit(here, here, f"; {statement}", f"; {statement}")]
        return [
            Edit(here, here, "", f"; {statement}"),
            Edit(ends, ends, f"\n{indent}{statement}", ""),
        ]


def applied(text: str, edits: list[Edit]) -> tuple[str, str, tuple[int | None, ...]]:
    """Return the edited text in its displayed and executed forms, and the origins of its lines.

    The origin of a displayed line is the index of the original line, or None for an added line.
    """
    shown, executed, done = _Shown(), [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        assert edit.start >= done, "overlapping edits"
        between = text[done : edit.start]
        shown.keep(between)
        shown.put(edit.shown, text.count("\n", edit.start, edit.end))
        executed += [between, edit.executed]
        done = edit.end
    shown.keep(text[done:])
    return "".join(shown.parts), "".join([*executed, text[done:]]), tuple(shown.origins)


def _lines(text: str) -> list[str]:
    """Split a text into lines as Python's parser does; a form feed does not end a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


class _Shown:
    """Builds the displayed text and records the origins of its lines."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.origins: list[int | None] = []
        self._line = 0
        self._begins = True
        self._added = False

    def keep(self, text: str) -> None:
        """Append a piece of the original."""
        for part in _lines(text):
            self._append(part, added=False)
            self._line += part.endswith("\n")

    def put(self, text: str, lines: int) -> None:
        """Append text that replaces a piece of the source with this number of line breaks."""
        for part in _lines(text):
            self._append(part, added=True)
        self._line += lines

    def _append(self, part: str, *, added: bool) -> None:
        if self._begins:
            self.origins.append(None if self._added else self._line)
        self.parts.append(part)
        self._begins = part.endswith("\n")
        if self._begins:
            self._added = added
