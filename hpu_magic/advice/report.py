"""A report with suggestions, sorted by gain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from hpu_magic.advice.suggestion import Suggestion
from hpu_magic.errors import HPUError
from hpu_magic.runtime.present.report import Report

_CELL = "text-align:left;vertical-align:top;padding:4px 12px 4px 0"
# Code spans the full width and scrolls, because pages would otherwise wrap its lines.
_SCROLLED = "width:0;min-width:100%;overflow-x:auto"
_CODE = "margin:0;font-size:smaller;white-space:pre"


@dataclass(frozen=True, repr=False)
class Advice(Report):
    """Suggestions sorted by gain; those needed to make the step fit come first."""

    subject: str  #: such as ``GPT on gaudi2 (lazy mode, bf16, batch 8, adamw)``
    suggestions: tuple[Suggestion, ...]  #: the suggestions, in order
    remarks: tuple[str, ...] = ()  #: additional sentences

    def __len__(self) -> int:
        return len(self.suggestions)

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.suggestions)

    def __getitem__(self, index: int) -> Suggestion:
        return self.suggestions[index]

    def numbered(self, number: int) -> Suggestion:
        """Return the suggestion with a given number, starting at 1; raise `HPUError` if unknown."""
        if 1 <= number <= len(self):
            return self.suggestions[number - 1]
        if not self.suggestions:
            raise HPUError(f"Unknown advice number {number}: there are no suggestions.")
        raise HPUError(f"Unknown advice number {number}: use 1 to {len(self)}.")

    def title(self) -> str:
        """Return the headline."""
        if not self.suggestions:
            return f"Advice for {self.subject}: no faster alternative was found"
        count = f"{len(self)} change{'' if len(self) == 1 else 's'}"
        return f"Advice for {self.subject}: {count}, sorted by gain"

    def notes(self) -> tuple[str, ...]:
        """Return the remarks."""
        return self.remarks

    def text_body(self) -> list[str]:
        """Return the numbered suggestions with their code."""
        lines = []
        for number, suggestion in enumerate(self.suggestions, 1):
            code = suggestion.change.splitlines()
            lines += [
                f"  {number}. {suggestion.title}",
                f"     gain    {suggestion.gain_text}",
                f"     why     {suggestion.why}",
                f"     change  {code[0]}",
                *(f"             {line}".rstrip() for line in code[1:]),
            ]
            if suggestion.command:
                lines.append(f"     apply   --apply {number} runs {suggestion.command}")
        return lines

    def html_table(self) -> str:
        """Return the suggestions with their code as HTML."""
        if not self.suggestions:
            return ""
        names = ("", "change", "gain", "why")
        head = "".join(
            f'<th style="{_CELL};font-weight:normal;opacity:.75">{name}</th>' for name in names
        )
        body = "".join(_rows(number, each) for number, each in enumerate(self.suggestions, 1))
        return f"<table><tr>{head}</tr>{body}</table>"


def _rows(number: int, suggestion: Suggestion) -> str:
    texts = (str(number), suggestion.title, suggestion.gain_text, suggestion.why)
    cells = "".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in texts)
    applied = f"<div>--apply {number}: <code>{escape(suggestion.command)}</code></div>"
    code = f'<pre style="{_CODE}">{escape(suggestion.change)}</pre>'
    code += applied if suggestion.command else ""
    change = f'<div style="{_SCROLLED}">{code}</div>'
    return f'<tr>{cells}</tr><tr><td></td><td colspan="3" style="{_CELL}">{change}</td></tr>'


def ordered(suggestions: Iterable[Suggestion]) -> tuple[Suggestion, ...]:
    """Return the suggestions sorted by gain; those with an unknown gain come last."""

    def rank(each: Suggestion) -> tuple[bool, float]:
        return (not each.needed, -each.gain.factor if each.gain is not None else math.inf)

    return tuple(sorted(suggestions, key=rank))
