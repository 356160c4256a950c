"""A diagnosis as HTML for light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from hpu_magic.health.finding import Finding
from hpu_magic.health.terminal import counted

_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"
_MARK = "display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:6px"
# Readable on light and dark backgrounds; the state is also written as a word.
_COLOURS = {"red": "#d64545", "amber": "#b8790f", "green": "#3f8f50"}


def html(
    headline: str, shown: Sequence[tuple[str, Finding]], folded: Sequence[tuple[str, Finding]]
) -> str:
    """Return a table of the listed findings with their fixes, and a fold with the others."""
    parts = [f"<div><b>{escape(headline)}</b></div>"]
    if shown:
        parts.append(_table(shown))
    if folded:
        parts.append(f"<details><summary>{escape(counted(folded))}</summary>")
        parts.append(f"{_table(folded)}</details>")
    return "".join(parts)


def _table(findings: Iterable[tuple[str, Finding]]) -> str:
    return f"<table>{''.join(_row(group, finding) for group, finding in findings)}</table>"


def _row(group: str, finding: Finding) -> str:
    text, fix = finding.filled()
    mark = f'<span style="{_MARK};background:{_COLOURS[finding.state]}"></span>{finding.state}'
    advice = f"<div>&rarr; {escape(fix)}</div>" if fix else ""
    return (
        f'<tr><td style="{_CELL};white-space:nowrap">{mark}</td>'
        f'<td style="{_CELL};opacity:.75">{escape(group)}</td>'
        f'<th style="{_CELL};font-weight:normal">{escape(finding.about)}</th>'
        f'<td style="{_CELL};max-width:60em">{escape(text)}{advice}</td></tr>'
    )
