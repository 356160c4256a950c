"""The report on ported code, with a diff."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from hpu_magic.runtime.device import device
from hpu_magic.runtime.porting.findings import INACTIVE, MISSING, REMARK, LineFinding
from hpu_magic.runtime.present.report import Report

Pieces = tuple[tuple[int, int], ...]

_CONTEXT = 1
_CELL = "text-align:left;vertical-align:top;line-height:1.4;white-space:pre"
_GAP = (
    f'<tr style="background:none"><td></td><td colspan="2" style="{_CELL};padding:0;opacity:.55">'
    "&#8943;</td></tr>"
)
_FONT = "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px)"
_TINT = {"-": "rgba(219,68,55,.13)", "+": "rgba(46,160,67,.15)", " ": "transparent"}
_STRONG = {"-": "rgba(219,68,55,.28)", "+": "rgba(46,160,67,.32)"}


class DiffLine(NamedTuple):
    """A line of the diff."""

    sign: str  # " ", "-" (only in the original) or "+" (only in the ported code)
    number: int | None  # line number in the original; None if the line is only in the ported code
    text: str
    changed: Pieces = ()  # start and end of the pieces that differ from the other version


@dataclass(repr=False)
class PortReport(Report):
    """A report on CUDA code that was ported."""

    original: str
    ported: str
    """The code before and after porting."""
    first: str  #: statements to execute before the first line
    executed: str  #: the ported code, with each statement on its original line
    findings: tuple[LineFinding, ...]
    """Names without a counterpart, and notes, in line order."""
    origins: tuple[int | None, ...]
    """The index of the original line for each line of the ported code; None for added lines."""
    first_line: int = 1  #: line number of the first line of the original

    @property
    def changed(self) -> bool:
        """Whether anything was ported."""
        return self.original != self.ported

    @property
    def missing(self) -> tuple[LineFinding, ...]:
        """The names that have no counterpart and therefore prevent the code from running."""
        return tuple(each for each in self.findings if each.kind == MISSING)

    def title(self) -> str:
        """Return the headline."""
        if not self.changed:
            return f"Nothing to port to {device.family()}"
        before, after = _split(self.original), _split(self.ported)
        kept = [(before[old], text) for text, old in self._with_origins(after) if old is not None]
        counts = [
            (sum(old != new for old, new in kept), "changed"),
            (len(after) - len(kept), "added"),
            (len(before) - len(kept), "removed"),
        ]
        parts = [f"{count} {what}" for count, what in counts if count]
        parts[0] = parts[0].replace(" ", " line " if parts[0].startswith("1 ") else " lines ", 1)
        return f"Ported to {device.family()}: {', '.join(parts)}"

    def notes(self) -> Sequence[str]:
        """Return notes, including those on names that have no effect."""
        return [_sentence(each) for each in self.findings if each.kind in (INACTIVE, REMARK)]

    def warnings(self) -> Sequence[str]:
        """Return warnings about names that have no counterpart."""
        return [_sentence(each) for each in self.missing]

    def diff(self) -> list[DiffLine]:
        """Return the changed lines with one line of context; empty if nothing was changed."""
        lines = list(self._all_lines())
        changes = [index for index, line in enumerate(lines) if line.sign != " "]
        near = {index + step for index in changes for step in range(-_CONTEXT, _CONTEXT + 1)}
        return [line for index, line in enumerate(lines) if index in near]

    def _all_lines(self) -> Iterator[DiffLine]:
        before, done = _split(self.original), 0
        for text, origin in self._with_origins(_split(self.ported)):
            if origin is None:
                yield DiffLine("+", None, text)
                continue
            for index in range(done, origin):
                yield DiffLine("-", index + self.first_line, before[index])
            old, number = before[origin], origin + self.first_line
            if text == old:
                yield DiffLine(" ", number, text)
            else:
                removed, added = _pieces(old, text)
                yield DiffLine("-", number, old, removed)
                yield DiffLine("+", None, text, added)
            done = origin + 1
        for index in range(done, len(before)):
            yield DiffLine("-", index + self.first_line, before[index])

    def _with_origins(self, lines: list[str]) -> Iterator[tuple[str, int | None]]:
        return zip(lines, self.origins, strict=True)

    def text_body(self) -> list[str]:
        """Return the diff as text."""
        lines = self.diff()
        width = max((len(str(line.number)) for line in lines if line.number), default=0)
        body = []
        for line, gap in _with_gaps(lines):
            body += [f"  {'':{width}}   ..."] * gap
            body.append(f"  {line.number or '':>{width}} {line.sign} {line.text}".rstrip())
        return body

    def html_table(self) -> str:
        """Return the diff as HTML."""
        rows = "".join(_GAP * gap + _row(line) for line, gap in _with_gaps(self.diff()))
        style = f"border-collapse:collapse;{_FONT}"
        table = f'<table style="{style}">{rows}</table>'
        return f'<div style="overflow-x:auto;margin:4px 0">{table}</div>' if rows else ""


def _with_gaps(lines: list[DiffLine]) -> Iterator[tuple[DiffLine, bool]]:
    """Yield each line with a flag that indicates whether lines were omitted before it."""
    last = None
    for line in lines:
        yield line, bool(last and line.number and line.number > last + 1)
        last = line.number or last


def _split(code: str) -> list[str]:
    return code.removesuffix("\n").split("\n") if code else []


def _sentence(finding: LineFinding) -> str:
    return f"Line {finding.line}: {finding.text}."


def _pieces(before: str, after: str) -> tuple[Pieces, Pieces]:
    """Return the pieces in which two versions of a line differ, compared by word and character."""
    old, new = (re.findall(r"\w+|\s+|.", text) for text in (before, after))
    removed, added = [], []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            removed.append(_span(old, start, end))
            added.append(_span(new, new_start, new_end))
    return tuple(removed), tuple(added)


def _span(words: list[str], start: int, end: int) -> tuple[int, int]:
    begins = len("".join(words[:start]))
    return begins, begins + len("".join(words[start:end]))


def _row(line: DiffLine) -> str:
    number = f"{_CELL};text-align:right;padding:0 10px 0 4px;opacity:.55;user-select:none"
    return (
        f'<tr style="background:{_TINT[line.sign]}">'
        f'<td style="{number}">{line.number or ""}</td>'
        f'<td style="{_CELL};padding:0 8px 0 0;user-select:none">{line.sign}</td>'
        f'<td style="{_CELL};padding:0 10px 0 0">{_emphasized(line)}</td></tr>'
    )


def _emphasized(line: DiffLine) -> str:
    parts, done = [], 0
    for start, end in line.changed:
        parts.append(escape(line.text[done:start]))
        style = f"background:{_STRONG[line.sign]};border-radius:2px"
        parts.append(f'<span style="{style}">{escape(line.text[start:end])}</span>')
        done = end
    return "".join([*parts, escape(line.text[done:])])
