"""A diagnosis as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from hpu_magic.health.finding import Finding

_COLOURS = {"red": "\x1b[31m", "amber": "\x1b[33m", "green": "\x1b[32m"}
_END = "\x1b[0m"


def text(
    headline: str,
    shown: Sequence[tuple[str, Finding]],
    folded: Sequence[tuple[str, Finding]],
    colours: bool,
) -> str:
    """Return the findings by group with their fixes, and one line that counts the others."""
    lines = [headline]
    for (state, group), members in groupby(shown, lambda each: (each[1].state, each[0])):
        mark = f"{_COLOURS[state]}{state}{_END}" if colours else state
        lines.append(f"{mark}, {group}")
        for _, finding in members:
            problem, fix = finding.filled()
            lines.append(f"  {finding.about}: {problem}")
            if fix:
                lines.append(f"    -> {fix}")
    if folded:
        lines.append(counted(folded))
    return "\n".join(lines)


def counted(folded: Sequence[tuple[str, Finding]]) -> str:
    """Return the number of green findings that are not listed, by group."""
    groups = Counter(group for group, _ in folded)
    listed = ", ".join(f"{group} {count}" for group, count in groups.items())
    return f"green: {listed} (--all shows them)"
