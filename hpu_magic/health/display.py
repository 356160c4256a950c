"""Display a diagnosis as text or HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from hpu_magic.health.finding import Finding

_TERMINAL_COLOURS = {"red": "\x1b[31m", "amber": "\x1b[33m", "green": "\x1b[32m"}
_END = "\x1b[0m"
_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"
_MARK = "display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:6px"
# These colors are legible on light and dark backgrounds. The state is also shown as a word.
_COLOURS = {"red": "#d64545", "amber": "#b8790f", "green": "#3f8f50"}


def text(
    headline: str,
    shown: Sequence[tuple[str, Finding]],
    folded: Sequence[tuple[str, Finding]],
    colours: bool,
) -> str:
    """Return the findings by group with their fixes, and a line that counts unlisted findings."""
    lines = [headline]
    for (state, group), members in groupby(shown, lambda each: (each[1].state, each[0])):
        mark = f"{_TERMINAL_COLOURS[state]}{state}{_END}" if colours else state
        lines.append(f"{mark}, {group}")
        for _, finding in members:
            problem, fix = finding.filled()
            lines.append(f"  {finding.about}: {problem}")
            if fix:
                lines.append(f"    -> {fix}")
    if folded:
        lines.append(_counted(folded))
    return "\n".join(lines)


def html(
    headline: str, shown: Sequence[tuple[str, Finding]], folded: Sequence[tuple[str, Finding]]
) -> str:
    """Return a table of the listed findings and their fixes, and a collapsed table of the rest."""
    parts = [f"<div><b>{escape(headline)}</b></div>", _table(shown)]
    if folded:
        summary = f"<summary>{escape(_counted(folded))}</summary>"
        parts.append(f"<details>{summary}{_table(folded)}</details>")
    return "".join(parts)


def _table(findings: Iterable[tuple[str, Finding]]) -> str:
    rows = "".join(_row(group, finding) for group, finding in findings)
    return f"<table>{rows}</table>" if rows else ""


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


def _counted(folded: Sequence[tuple[str, Finding]]) -> str:
    """Return a line with the number of unlisted green findings in each group."""
    groups = Counter(group for group, _ in folded)
    listed = ", ".join(f"{group} {count}" for group, count in groups.items())
    return f"green: {listed} (--all shows them)"
