"""A cell's text and the edits of it, which keep everything else as it was typed."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """A replaced piece of text.

    Attributes
    ----------
    start, end : int
        Where the piece lies.
    shown : str
        What a reader is shown instead; it may bring lines.
    executed : str
        What is executed instead, with as many line breaks as the piece had, so that every
        statement stays in its line.
    """

    start: int
    end: int
    shown: str
    executed: str


class Source:
    """Text with positions as the syntax tree gives them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = _lines(text) or [""]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Return the place of a position; columns count bytes, as in the syntax tree.

        A position that the text does not have lies at its end.
        """
        if line > len(self._lines):
            return len(self.text)
        before = self._lines[line - 1].encode()[:column].decode(errors="replace")
        return self._starts[line - 1] + len(before)

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return where a node begins."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Return where a node ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return a node's text."""
        return self.text[self.start(node) : self.end(node)]

    def line_of(self, offset: int) -> tuple[int, int]:
        """Return where the line around a place begins and ends, without its line break."""
        begins = self.text.rfind("\n", 0, offset) + 1
        ends = self.text.find("\n", offset)
        return begins, len(self.text) if ends < 0 else ends

    def replaced(self, start: int, end: int, text: str, *, whole: bool = False) -> Edit:
        """Return the edit that puts `text` in a piece's place.

        Lines that a whole expression takes are kept within parentheses.
        """
        lost = "\n" * self.text.count("\n", start, end)
        executed = f"({text}{lost})" if whole and lost else text + lost
        return Edit(start, end, text, executed)

    def behind(self, node: ast.stmt, statement: str) -> list[Edit]:
        """Return the edits that put a statement behind a simple one.

        It is shown in a line of its own, and executed in the other's line.
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
    """Return the text with all edits: as it is shown, as it is executed, and the lines' origins.

    The origin of a line that is shown is the index of the line that it was, None where an edit
    brings it.
    """
    shown, executed, done = _Shown(), [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        assert edit.start >= done, "two edits of the same text"
        between = text[done : edit.start]
        shown.keep(between)
        shown.put(edit.shown, text.count("\n", edit.start, edit.end))
        executed += [between, edit.executed]
        done = edit.end
    shown.keep(text[done:])
    return "".join(shown.parts), "".join([*executed, text[done:]]), tuple(shown.origins)


def _lines(text: str) -> list[str]:
    """Split a text as Python does, which takes a form feed for a blank."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


class _Shown:
    """A text in the making that knows where its lines come from."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.origins: list[int | None] = []
        self._line = 0
        self._begins = True
        self._brought = False

    def keep(self, text: str) -> None:
        """Append a piece of the original."""
        for part in _lines(text):
            self._append(part, brought=False)
            self._line += part.endswith("\n")

    def put(self, text: str, lines: int) -> None:
        """Append what stands in the place of a piece with so many line breaks."""
        for part in _lines(text):
            self._append(part, brought=True)
        self._line += lines

    def _append(self, part: str, *, brought: bool) -> None:
        if self._begins:
            self.origins.append(None if self._brought else self._line)
        self.parts.append(part)
        self._begins = part.endswith("\n")
        if self._begins:
            self._brought = brought
